"""What is said of the disk of an embedded store, of a store that meets a full disk, too."""

import os
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.harness.chain_harness import until
from tests.harness.small_disk import small_disk
from threefs import store_disk
from threefs.errors import MaybeCommitted, NoSpace
from threefs.kv.memory import MemoryEngine
from threefs.kv.recovering_engine import RecoveringEngine
from threefs.wire import common_pb2 as pb

MIB = 1 << 20


def described(engine: RecoveringEngine) -> pb.StoreDisk:
    found = store_disk.describe(engine)
    assert found is not None
    return found


async def put(engine: RecoveringEngine, key: bytes, value: bytes) -> None:
    tx = engine.begin()
    tx.set(key, value)
    await tx.commit()


@pytest.mark.slow
async def test_a_full_disk_is_said_until_the_store_takes_changes_again(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "16m") as disk, capture_logs():
        engine = await RecoveringEngine.open(disk / "store")
        await put(engine, b"a", b"1")
        found = described(engine)
        assert (found.directory, found.capacity_bytes, found.full) == (str(disk / "store"), 16 * MIB, False)
        (disk / "of others").write_bytes(bytes(12 * MIB))
        assert described(engine).free_bytes <= found.free_bytes - 12 * MIB
        with pytest.raises((NoSpace, MaybeCommitted)):
            for number in range(1000):
                await put(engine, b"%d" % number, os.urandom(50_000))
        found = described(engine)
        assert found.full and found.free_bytes < found.needed_bytes < 16 * MIB
        (disk / "of others").unlink()
        assert described(engine).free_bytes >= found.needed_bytes
        await until(lambda: not described(engine).full)
        await put(engine, b"b", b"1")
        await engine.close()


def test_of_other_stores_nothing_is_said() -> None:
    assert store_disk.describe(MemoryEngine()) is None


async def test_a_disk_that_does_not_say_what_it_has_hides_nothing_else(tmp_path: Path) -> None:
    """The status of the whole cluster is told with it."""
    engine = await RecoveringEngine.open(tmp_path / "store")
    try:
        engine.directory = tmp_path / "gone"
        assert store_disk.describe(engine) is None
    finally:
        await engine.close()
