import asyncio
import os
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import kv_writer
from tests.harness.small_disk import small_disk as mounted_disk
from threefs.errors import Corrupt, MaybeCommitted, NoSpace, Unavailable
from threefs.kv.rocks import RocksEngine


class Gate:
    """A store whose WAL flush waits, or fails."""

    def __init__(self, engine: RocksEngine, fail_with: str | None = None) -> None:
        import threading

        self.release = threading.Event()
        self._store = engine._table._store
        self._fail_with = fail_with
        engine._table._store = self  # type: ignore[assignment]

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    def flush_wal(self, sync: bool) -> None:
        assert self.release.wait(30)
        if self._fail_with:
            raise Exception(self._fail_with)
        self._store.flush_wal(sync)


async def turns(number: int = 20) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


async def test_a_reader_waits_until_what_it_has_read_is_durable(tmp_path: Path) -> None:
    engine = await RocksEngine.open(tmp_path / "store")
    gate = Gate(engine)
    writer = engine.begin()
    writer.set(b"m", b"1")
    commit = asyncio.create_task(writer.commit())
    await turns()
    assert not commit.done()

    unrelated = engine.begin()
    await unrelated.get(b"a")
    await unrelated.get_range(b"n", b"z")
    await unrelated.commit()  # it saw nothing of the commit under way

    waits = []
    for read in ("point", "range", "snapshot point", "snapshot range", "confirm"):
        reader = engine.begin()
        if "range" in read:
            assert await reader.get_range(b"a", b"z", snapshot="snapshot" in read) == [(b"m", b"1")]
        else:
            assert await reader.get(b"m", snapshot="snapshot" in read) == b"1"
        waits.append(asyncio.create_task(reader.confirm() if read == "confirm" else reader.commit()))
    await turns()
    assert not any(wait.done() for wait in waits)
    gate.release.set()
    await asyncio.gather(commit, *waits)
    await engine.close()


async def test_a_reader_of_what_is_being_synced_is_not_told_of_damage_that_a_write_meets(tmp_path: Path) -> None:
    """It would take that for damage of what it has read, and not try again."""
    engine = await RocksEngine.open(tmp_path / "store")
    gate = Gate(engine)
    writer = engine.begin()
    writer.set(b"m", b"1")
    commit = asyncio.create_task(writer.commit())
    await turns()
    reader = engine.begin()
    assert await reader.get(b"m") == b"1"
    engine._table.failure = Corrupt("the table of this service is damaged")
    with pytest.raises(Unavailable, match="damaged"):
        await reader.confirm()
    engine._table.failure = None
    gate.release.set()
    await commit
    await engine.close()


@pytest.mark.parametrize(
    ("message", "refusal"),
    [("IO error: While fdatasync: Input/output error", Unavailable), ("IO error: No space left on device", NoSpace)],
)
async def test_a_failed_flush_leaves_the_outcome_open_and_ends_writing(
    tmp_path: Path, message: str, refusal: type[Exception]
) -> None:
    engine = await RocksEngine.open(tmp_path / "store")
    Gate(engine, message).release.set()
    writer, later = engine.begin(), engine.begin()
    writer.set(b"a", b"1")
    later.set(b"b", b"1")
    with pytest.raises(MaybeCommitted):
        await writer.commit()
    with pytest.raises(refusal):
        await later.commit()
    assert isinstance(engine.failure, refusal)
    with pytest.raises(refusal):  # what is read may vanish, so the answer must not be given
        reader = engine.begin()
        await reader.get(b"a")
        await reader.commit()
    await engine.close()


async def test_everything_is_there_after_closing_and_opening(tmp_path: Path) -> None:
    for number in range(3):
        engine = await RocksEngine.open(tmp_path / "store")
        tx = engine.begin()
        assert len(await tx.get_range(b"", b"\xff")) == number
        tx.set(b"%d" % number, b"")
        await tx.commit()
        await engine.close()


def acknowledged_until_killed(directory: Path, commits: int, *options: str) -> dict[int, int]:
    """Let a process write until `commits` are acknowledged, kill it, and return the last count of each task."""
    root = Path(__file__).parents[4]
    process = subprocess.Popen(
        [sys.executable, kv_writer.__file__, str(directory), *options],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(root)},
    )
    assert process.stdout is not None
    last: dict[int, int] = defaultdict(int)
    with process, process.stdout:
        for number, line in enumerate(process.stdout):
            if not line.endswith(b"\n"):
                break
            task, count = map(int, line.split())
            last[task] = count
            if number == commits:
                process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    return last


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["on the loop"]])
def test_acknowledged_commits_survive_kill_9_and_none_is_half_there(tmp_path: Path, options: list[str]) -> None:
    async def check(acknowledged: dict[int, int]) -> None:
        engine = await RocksEngine.open(tmp_path / "store")
        for task in range(kv_writer.TASKS):
            tx = engine.begin()
            counter = int(await tx.get(b"counter/%d" % task) or 0)
            begin = b"count/%d/" % task
            kept = {int(key.split(b"/")[2]) for key, _ in await tx.get_range(begin, begin + b"\xff")}
            assert counter >= acknowledged[task]
            assert kept == set(range(1, counter + 1))
        await engine.close()

    for commits in (500, 1500):
        acknowledged = acknowledged_until_killed(tmp_path / "store", commits, *options)
        assert sum(acknowledged.values()) > commits
        asyncio.run(check(acknowledged))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted_disk(tmp_path / "disk", "8m") as disk:
        yield disk


def test_a_full_disk_loses_nothing_that_was_acknowledged(small_disk: Path) -> None:
    async def fill() -> int:
        engine = await RocksEngine.open(small_disk / "store")
        number = 0
        while True:
            tx = engine.begin()
            tx.set(b"%06d" % number, os.urandom(50_000))
            try:
                await tx.commit()
            except (NoSpace, MaybeCommitted):
                break
            number += 1
        assert isinstance(engine.failure, NoSpace)
        reader = engine.begin()
        assert len(await reader.get_range(b"", b"%06d" % number, snapshot=True)) == number
        await reader.commit()
        await engine.close()
        return number

    async def count() -> int:
        engine = await RocksEngine.open(small_disk / "store")
        found = len(await engine.begin().get_range(b"", b"\xff"))
        await engine.close()
        return found

    acknowledged = asyncio.run(fill())
    assert acknowledged > 50
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    assert asyncio.run(count()) in (acknowledged, acknowledged + 1)
