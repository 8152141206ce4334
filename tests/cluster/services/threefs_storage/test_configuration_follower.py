"""A storage node takes every value that concerns it, over real sockets, from a manager beside it."""

from pathlib import Path

import pytest
from threefs_manager.service import Manager
from threefs_storage.node import StorageNode
from threefs_storage.scheduling.background_scheduler import Work
from threefs_storage.settings import Settings

from tests.harness.chain_harness import until
from tests.harness.solo_manager import SoloManager
from threefs.cluster.manager_client import FramedManagerClient
from threefs.configuration import KEYS, Role
from threefs.env.disk import RealDisk
from threefs.env.net import RealNet
from threefs.telemetry import logs
from threefs.wire import manager_pb2 as pb

NAMES = [name for name, key in KEYS.items() if Role.STORAGE in key.roles]
CHOSEN = {
    "background_bytes_per_s": "1000",
    "background_share": "0.5",
    "ballast_bytes": "4096",
    "cached_records": "10",
    "deferred_bytes": "4096",
    "deferred_changes": "3",
    "fold_interval_s": "5.0",
    "full_ratio": "0.9",
    "inline_bytes": "512",
    "log_level": "error",
    "scrub_bytes_per_s": "2000",
    "scrub_interval_s": "60.0",
}


async def started(solo: SoloManager, directory: Path, disk: RealDisk, **settings: object) -> StorageNode:
    node = StorageNode(
        Settings(node_id=1, data_dir=directory, manager=solo.address, control="", **settings),  # type: ignore[arg-type]
        net=RealNet(),
        disk=disk,
        managers=lambda peers: FramedManagerClient(peers, solo.address),
    )
    await node.start()
    return node


async def reported(manager: Manager) -> list[tuple[str, str, pb.KeyState]]:
    """What the node says, once it has the newest version."""
    newest = manager._configuration.current
    found: list[tuple[str, str, pb.KeyState]] = []

    def is_applied() -> bool:
        known = manager._failure_detector._nodes.get(1)
        if known is None or known.configuration is None or known.configuration.made_ns != newest.made_ns:
            return False
        found[:] = [(key.name, key.value, key.state) for key in known.configuration.keys]
        return True

    await until(is_applied)
    return found


async def test_a_running_node_takes_each_value_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(CHOSEN) == set(NAMES)
    monkeypatch.setattr(logs, "_least", logs._least)  # of this process
    async with SoloManager() as solo:
        await check(solo, tmp_path)


async def check(solo: SoloManager, tmp_path: Path) -> None:
    disk = RealDisk(threads=2)
    node = await started(solo, tmp_path, disk)
    assert set(node._configuration._applies) == set(NAMES), "each has a part that takes it"
    (target,) = node.targets
    await solo.set_values(CHOSEN)
    assert await reported(solo.manager) == [("ballast_bytes", str(16 << 20), pb.AWAITS_RESTART)]
    limits = node.storage.scheduler._own._pace._limits
    assert (limits.min_bytes_per_s, limits.share) == (1000, 0.5)
    assert node.storage.scheduler._rates[Work.SCRUB] == 2000
    assert (node.storage.scrubber._interval_s, target.scrub_interval_s) == (60.0, 60.0)
    assert node.storage.fold_scheduler.interval_s == 5.0
    overlay = target.engine._store.limits
    assert (overlay.deferred_bytes, overlay.inline_bytes, overlay.extents) == (4096, 512, 3)
    assert target.engine._files.full_ratio == 0.9 and target.engine._store._half == 5
    assert logs._least == logs.LEVELS["error"]
    await node.stop()

    node = await started(solo, tmp_path, disk, scrub_bytes_per_s=77)
    assert await reported(solo.manager) == [("scrub_bytes_per_s", "77", pb.OWN_FILE)]
    assert node.targets._settings.ballast_bytes == 4096, "a restart takes it"
    assert node.storage.scheduler._rates[Work.SCRUB] == 77, "the settings file wins"
    await solo.set_values({"log_level": "info"})
    await reported(solo.manager)
    await node.stop()
    await disk.close()
