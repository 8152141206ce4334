"""A manager starts with an older copy of its store: a backup that goes on must not replace what it has by that."""

import asyncio
import shutil
from pathlib import Path

import pytest
from threefs_backup.follower import Follower
from threefs_backup.restore import find_restore_point

from tests.harness.cluster import LocalCluster
from threefs.cluster.manager_client import ManagerClient
from threefs.env.net import RealNet
from threefs.errors import Unavailable
from threefs.rpc.connection_pool import ConnectionPool
from threefs.rpc.handshake import Identity


def catch_up(cluster: LocalCluster, backup: Path) -> None:
    """Bring the backup of the manager up to date."""

    async def work() -> None:
        peers = ConnectionPool(RealNet(), Identity("", "0" * 32, "", "tests"))
        follower = Follower(backup, "manager", ManagerClient.over_frames(peers, [cluster.manager.address]))
        try:
            await follower.catch_up()
        finally:
            await follower.close()
            await peers.close()

    asyncio.run(work())


@pytest.mark.timeout(200)
def test_an_older_copy_does_not_replace_the_backup_of_the_newest_store(tmp_path: Path) -> None:
    backup, data = tmp_path / "backup", tmp_path / "manager" / "data"
    backup.mkdir()
    with LocalCluster(tmp_path, storage=1, replicas=1, targets_per_disk=1, lease_s=3.0) as cluster:
        cluster.manager.kill()
        shutil.copytree(data, tmp_path / "older")
        cluster.manager.start()
        cluster.storage[1].kill()
        cluster.storage[1].start()
        cluster.wait_whole()
        catch_up(cluster, backup)
        kept = find_restore_point(backup, "manager")

        for program in (cluster.manager, cluster.meta, cluster.storage[1]):
            program.kill()
        data.rename(tmp_path / "newest")
        (tmp_path / "older").rename(data)
        cluster.manager.start()
        with pytest.raises(Unavailable, match="no node has confirmed"):
            catch_up(cluster, backup)
        assert find_restore_point(backup, "manager") == kept

        cluster.manager.kill()
        shutil.rmtree(data)
        (tmp_path / "newest").rename(data)
        cluster.manager.start()
        cluster.storage[1].start()
        catch_up(cluster, backup)
        assert find_restore_point(backup, "manager").snapshot == kept.snapshot, "it goes on where it was"
        cluster.meta.start()
