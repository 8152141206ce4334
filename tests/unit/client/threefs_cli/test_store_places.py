from pathlib import Path

import pytest
from threefs_cli.store_places import check_data_dir, is_lost, owned_data_dir

from threefs.cluster import data_format
from threefs.cluster.registration import write_cluster_id
from threefs.env.directory_lock import owned
from threefs.errors import AlreadyExists, Unavailable, WrongCluster
from threefs.kv.rocks import RocksEngine

CLUSTER = "c" * 32


def test_what_a_service_has_left_may_stay(tmp_path: Path) -> None:
    data_format.claim(tmp_path)
    write_cluster_id(tmp_path / "cluster_id", CLUSTER)
    (tmp_path / "lock").touch()
    check_data_dir(tmp_path)
    check_data_dir(tmp_path / "nowhere")
    (tmp_path / "thesis.txt").touch()
    with pytest.raises(AlreadyExists, match=r"holds other things \(such as thesis.txt\)"):
        check_data_dir(tmp_path)


async def test_a_store_with_records_or_one_in_use_is_not_lost(tmp_path: Path) -> None:
    assert await is_lost(tmp_path, CLUSTER)
    store = await RocksEngine.open(tmp_path / "kv")
    await store.close()
    assert await is_lost(tmp_path, CLUSTER), "it is empty"
    with owned(tmp_path):
        assert not await is_lost(tmp_path, CLUSTER)
    store = await RocksEngine.open(tmp_path / "kv")
    tx = store.begin()
    tx.set(b"key", b"value")
    await tx.commit()
    await store.close()
    assert not await is_lost(tmp_path, CLUSTER)


def test_a_directory_of_another_cluster_or_in_use_is_refused(tmp_path: Path) -> None:
    with owned_data_dir(tmp_path, CLUSTER), pytest.raises(Unavailable), owned_data_dir(tmp_path, CLUSTER):
        pass
    write_cluster_id(tmp_path / "cluster_id", "d" * 32)
    with pytest.raises(WrongCluster, match="belongs to cluster dddd"), owned_data_dir(tmp_path, CLUSTER):
        pass
    with owned_data_dir(None, CLUSTER):
        pass
