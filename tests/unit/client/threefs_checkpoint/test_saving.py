"""Saves of several ranks, each a thread, over a local directory."""

import math
import signal
import threading
import traceback
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from threefs_checkpoint.group import Group, SingleGroup
from threefs_checkpoint.index import Derived
from threefs_checkpoint.job_directory import CheckpointDirectory, read_index
from threefs_checkpoint.loading import load, wanted_of
from threefs_checkpoint.saving import SaveFailedError, Saver, SaveReport, SaveVetoedError
from threefs_checkpoint.state import Deferred, Shard, State

from tests.harness.checkpoint_files import CheckpointFiles
from tests.harness.ranks import each_rank, outcomes
from threefs.errors import InvalidArgument, NoSpace, NotFound

CHUNK = 256


@dataclass
class Slot:
    fs: CheckpointFiles
    step: int = 1

    def begin(self) -> str:
        return CheckpointDirectory(self.fs, "/c").begin("step", self.step)

    def publish(self, path: str) -> str:
        return CheckpointDirectory(self.fs, "/c").publish(path, "step", self.step)

    def abandon(self, path: str) -> None:
        self.fs.remove(path, recursive=True)


@pytest.fixture
def fs(tmp_path: Path) -> CheckpointFiles:
    return CheckpointFiles(str(tmp_path))


def state_of(rank: int, world: int, seed: int = 0) -> State:
    """A replicated tensor, one that is sharded by rows, and an expert of this rank."""
    numbers = np.random.default_rng(seed)
    weight, moments = numbers.normal(size=(9, 31)), numbers.normal(size=(8 * world, 5)).astype(np.float32)
    return {
        "weight": weight,
        "moments": Shard(moments[8 * rank : 8 * rank + 8], (8 * world, 5), (8 * rank, 0)),
        f"expert.{rank}": np.full((3, 7), rank, np.int8),
        "step": np.array(seed),
    }


def run(
    fs: CheckpointFiles, group: Group, state: State | Callable[[], State], step: int = 1, **options: Any
) -> SaveReport | None:
    saver = Saver(fs, group, chunk_bytes=CHUNK, staging_bytes=options.pop("staging_bytes", 2 * CHUNK))
    try:
        saver.save(step, state, Slot(fs, options.pop("slot", step)), **options)
        return saver.wait()
    finally:
        saver.close()


def test_every_rank_writes_its_part_and_all_is_there(fs: CheckpointFiles) -> None:
    reports = each_rank(4, lambda group: run(fs, group, state_of(group.rank, 4), metadata={"lr": 0.1}))
    assert fs.listing("/c") == ["step-000000000001"]
    index = read_index(fs, "/c/step-000000000001")
    assert (index.step, index.world, index.metadata) == (1, 4, {"lr": 0.1})
    assert [report.bytes_written for report in reports if report] == list(index.file_bytes)
    assert all(size > 8 * 5 * 4 for size in index.file_bytes)
    found = load(fs, "/c/step-000000000001", index, wanted_of(index, None))
    assert (found["weight"] == state_of(0, 4)["weight"]).all()
    for rank in range(4):
        shard = state_of(rank, 4)["moments"]
        assert isinstance(shard, Shard)
        assert (found["moments"][8 * rank : 8 * rank + 8] == shard.array).all()
        assert (found[f"expert.{rank}"] == rank).all()
    written = sum(shard.part.size for tensor in index.tensors.values() for shard in tensor.shards)
    assert written == 9 * 31 + 8 * 4 * 5 + 4 * 21 + 1  # what is replicated is written once


def test_arrays_may_change_when_save_has_returned(fs: CheckpointFiles) -> None:
    array = np.zeros(10 * CHUNK, np.uint8)
    saver = Saver(fs, chunk_bytes=CHUNK, staging_bytes=20 * CHUNK)
    for step in (1, 2, 3):
        array[:] = step
        saver.save(step, {"a": array}, Slot(fs, step))
        array[:] = 99
    report = saver.wait()
    saver.close()
    assert report is not None and report.staging_peak_bytes == 10 * CHUNK and report.step == 3
    for step in (1, 2, 3):
        index = read_index(fs, f"/c/step-{step:012d}")
        assert (load(fs, f"/c/step-{step:012d}", index, wanted_of(index, None))["a"] == step).all()


def test_a_veto_names_the_rank_and_its_host_on_all_of_them(fs: CheckpointFiles) -> None:
    fs.mkdir("/c")
    found = outcomes(
        3, lambda group: run(fs, group, state_of(group.rank, 3), veto="the loss is nan" if group.rank == 2 else "")
    )
    for error in found:
        assert isinstance(error, SaveVetoedError)
        assert "rank 2 on " in str(error) and "the loss is nan" in str(error)
    assert fs.listing("/c") == []


def test_a_rank_that_cannot_write_fails_all_and_nothing_is_left(fs: CheckpointFiles) -> None:
    class Full(CheckpointFiles):
        def write_batch(self, rows: object) -> None:
            raise NoSpace

    full = Full(fs.root)
    found = outcomes(3, lambda group: run(full if group.rank == 1 else fs, group, state_of(group.rank, 3)))
    for error in found:
        assert isinstance(error, SaveFailedError)
        assert "rank 1 on " in str(error) and "NoSpace" in str(error)
    assert fs.listing("/c") == []


def test_what_cannot_be_saved_is_refused_on_all_ranks(fs: CheckpointFiles) -> None:
    bad: State = {"a": np.array([None])}
    found = outcomes(2, lambda group: run(fs, group, bad if group.rank == 0 else state_of(1, 2)))
    assert isinstance(found[0], InvalidArgument)
    assert isinstance(found[1], SaveFailedError) and "rank 0 on " in str(found[1])
    found = outcomes(2, lambda group: run(fs, group, state_of(0, 2) if group.rank == 0 else {}))
    assert all(isinstance(error, InvalidArgument) and "40 of its 80 elements" in str(error) for error in found)
    found = outcomes(2, lambda group: run(fs, group, {}, step=group.rank))
    assert all(isinstance(error, SaveFailedError) and "saves step" in str(error) for error in found)
    found = outcomes(1, lambda group: run(fs, group, {}, metadata=object()))
    assert isinstance(found[0], InvalidArgument)


def test_a_rank_that_has_no_state_says_so_to_the_others(fs: CheckpointFiles) -> None:
    def broken() -> State:
        return {"a": np.zeros(1 // 0)}

    first, second = outcomes(2, lambda group: run(fs, group, broken if group.rank else lambda: state_of(0, 2)))
    assert isinstance(first, SaveFailedError) and "rank 1 on " in str(first) and "ZeroDivisionError" in str(first)
    assert isinstance(second, ZeroDivisionError)


def test_a_copy_that_breaks_off_is_never_published(fs: CheckpointFiles) -> None:
    def interrupted() -> NDArray[Any]:
        raise KeyboardInterrupt

    small = Deferred("float64", (4, 4), interrupted)  # in the last chunk, so all of them are written
    saver = Saver(fs, chunk_bytes=CHUNK, staging_bytes=2 * CHUNK)
    with pytest.raises(KeyboardInterrupt):
        saver.save(1, {"a": np.zeros(4 * CHUNK), "b": small}, Slot(fs))
    with pytest.raises(SaveFailedError, match="broken off"):
        saver.wait()
    saver.save(2, {"a": np.zeros(3)}, Slot(fs, 2))
    saver.wait()
    saver.close()
    assert fs.listing("/c") == ["step-000000000002"]


def test_parameters_are_recovered_from_their_master_copies(fs: CheckpointFiles) -> None:
    master = np.random.default_rng(1).normal(size=(8, 6)).astype(np.float32)

    def work(group: Group) -> SaveReport | None:
        rows = slice(4 * group.rank, 4 * group.rank + 4)
        state: State = {
            f"master.{group.rank}": master[rows],
            "whole": Shard(master[rows], (8, 6), (4 * group.rank, 0)),
            "p": np.zeros((8, 6), np.uint16),
        }
        masters = {f"p.{group.rank}": Derived("bfloat16", f"master.{group.rank}"), "p": Derived("bfloat16", "whole")}
        return run(fs, group, state, masters=masters)

    each_rank(2, work)
    index = read_index(fs, "/c/step-000000000001")
    assert set(index.tensors) == {"master.0", "master.1", "whole"}
    found = load(fs, "/c/step-000000000001", index, wanted_of(index, ["p", "p.1"]))
    restored = (found["p"].astype(np.uint32) << 16).view(np.float32)
    assert np.abs(restored / master - 1).max() < 2**-8
    assert (found["p.1"] == found["p"][4:]).all()


def test_a_master_copy_that_nobody_has_is_named(fs: CheckpointFiles) -> None:
    with pytest.raises(SaveFailedError, match="no rank has the master copy 'x' of tensor 'p'"):
        each_rank(1, lambda group: run(fs, group, {"a": np.zeros(3)}, masters={"p": Derived("bfloat16", "x")}))


@pytest.mark.parametrize("chunk_bytes", [0, 100, 32, 128 << 20])
def test_sizes_that_are_not_possible_are_refused(fs: CheckpointFiles, chunk_bytes: int) -> None:
    with pytest.raises(InvalidArgument, match="power of two"):
        Saver(fs, chunk_bytes=chunk_bytes)


def test_a_step_of_numpy_is_a_step_and_others_are_refused(fs: CheckpointFiles) -> None:
    step: Any = np.int64(7)
    assert run(fs, SingleGroup(), {"a": np.zeros(3)}, step=step) is not None
    assert type(read_index(fs, "/c/step-000000000007").step) is int
    for step in (3.0, math.nan, "3", None):
        with pytest.raises(InvalidArgument, match="whole number"):
            run(fs, SingleGroup(), {"a": np.zeros(3)}, step=step)


def test_what_could_not_be_loaded_is_never_published(fs: CheckpointFiles) -> None:
    with pytest.raises(InvalidArgument, match="33 dimensions; 32 are the most"):
        run(fs, SingleGroup(), {"a": np.zeros((1,) * 33)})
    clash = {"p": Derived("bfloat16", "w")}  # rank 1 gives the tensor itself

    def work(group: Group) -> SaveReport | None:
        state = {"w": np.zeros(3, np.float32), "p": np.zeros(3, np.float32)}
        return run(fs, group, state, masters=clash if group.rank == 0 else None)

    for error in outcomes(2, work):
        assert isinstance(error, SaveFailedError) and "'p' cannot be derived" in str(error)
    assert fs.listing("/c") == []


def test_a_state_that_is_none_is_told_to_the_other_ranks(fs: CheckpointFiles) -> None:
    bad: Any = None
    found = outcomes(2, lambda group: run(fs, group, bad if group.rank else state_of(0, 2)))
    assert isinstance(found[0], SaveFailedError) and "rank 1 on " in str(found[0]) and "AttributeError" in str(found[0])
    assert isinstance(found[1], AttributeError)


def test_a_wait_that_is_broken_off_leaves_the_save_to_its_end(fs: CheckpointFiles) -> None:
    """As by Ctrl-C: the next save waits for it too, instead of sharing the staging area with it."""
    may_begin, in_begin = threading.Event(), threading.Event()

    class Slow(Slot):
        def begin(self) -> str:
            in_begin.set()
            may_begin.wait()
            return super().begin()

    def interrupt(number: int, frame: FrameType | None) -> None:
        if any(each.f_code is Saver.wait.__code__ for each, _ in traceback.walk_stack(frame)):
            signal.setitimer(signal.ITIMER_REAL, 0)
            raise KeyboardInterrupt

    saver = Saver(fs, chunk_bytes=CHUNK, staging_bytes=8 * CHUNK)
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        saver.save(1, {"a": np.full(CHUNK, 1, np.uint8)}, Slow(fs))
        in_begin.wait()
        signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)  # again and again, until it comes in the wait
        with pytest.raises(KeyboardInterrupt):
            saver.wait()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert saver.busy
    may_begin.set()
    saver.save(2, {"a": np.full(CHUNK, 2, np.uint8)}, Slot(fs, 2))
    saver.wait()
    saver.close()
    for step in (1, 2):
        index = read_index(fs, f"/c/step-{step:012d}")
        assert (load(fs, f"/c/step-{step:012d}", index, wanted_of(index, None))["a"] == step).all()


def test_a_save_after_the_end_is_refused(fs: CheckpointFiles) -> None:
    saver = Saver(fs, chunk_bytes=CHUNK, staging_bytes=2 * CHUNK)
    saver.close()
    with pytest.raises(InvalidArgument, match="was closed"):
        saver.save(1, {}, Slot(fs))


def test_a_save_that_is_broken_off_publishes_nothing(tmp_path: Path) -> None:
    class Slow(CheckpointFiles):
        def write_batch(self, rows: Any) -> None:
            going_on.wait(60)
            super().write_batch(rows)

    going_on = threading.Event()
    fs = Slow(str(tmp_path))
    saver = Saver(fs, chunk_bytes=CHUNK)
    saver.save(1, state_of(0, 1), Slot(fs))
    saver.break_off()
    going_on.set()
    with pytest.raises(SaveFailedError, match="the save was broken off"):
        saver.wait()
    assert fs.listing("/c") == []
    saver.save(2, state_of(0, 1), Slot(fs, 2))
    assert saver.wait() is not None and fs.listing("/c") == ["step-000000000002"]
    saver.close()


def test_a_save_whose_directory_another_job_has_removed_says_so(fs: CheckpointFiles) -> None:
    class Swept(CheckpointFiles):
        def chunk_checksums(self, files: Any) -> Any:
            CheckpointDirectory(fs, "/c").make_room("step", 1)
            raise NotFound(files[0])

    def work(group: Group) -> SaveReport | None:
        return run(Swept(fs.root) if group.rank == 1 else fs, group, state_of(group.rank, 2))

    for found in outcomes(2, work):
        assert isinstance(found, SaveFailedError) and "step-000000000001 is gone: does another job save" in str(found)


def test_tensors_that_are_deferred_are_in_memory_one_at_a_time(fs: CheckpointFiles) -> None:
    loaded: list[weakref.ref[NDArray[Any]]] = []

    def load_one(number: int) -> NDArray[Any]:
        assert all(before() is None for before in loaded)
        array = np.full(50 + 30 * number, number, np.uint16)
        loaded.append(weakref.ref(array))
        return array

    saver = Saver(fs, chunk_bytes=CHUNK, staging_bytes=2 * CHUNK)
    state = {f"{n}": Deferred("bfloat16", (50 + 30 * n,), lambda n=n: load_one(n)) for n in range(8)}  # type: ignore[misc]
    saver.save(1, state, Slot(fs))
    report = saver.wait()
    assert report is not None and len(loaded) == 8, "each is loaded once"
    index = read_index(fs, report.path)
    found = load(fs, report.path, index, wanted_of(index, None))
    assert all((found[f"{n}"] == n).all() and index.tensors[f"{n}"].dtype == "bfloat16" for n in range(8))
    with pytest.raises(ZeroDivisionError):
        saver.save(2, {"x": Deferred("int8", (1 << 12,), lambda: np.zeros(1 // 0))}, Slot(fs, 2))
    with pytest.raises(SaveFailedError):
        saver.wait()
    saver.close()
    assert fs.listing("/c") == ["step-000000000001"]
