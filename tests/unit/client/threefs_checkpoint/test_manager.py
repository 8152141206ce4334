"""The manager of several ranks, each a thread, over a local directory."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threefs_checkpoint.group import Group
from threefs_checkpoint.index import Derived, Index
from threefs_checkpoint.job_directory import FULL, MODEL, CheckpointDirectory
from threefs_checkpoint.manager import CheckpointManager, Loaded, first_not_finite, not_finite
from threefs_checkpoint.save_interval import Every
from threefs_checkpoint.saving import SaveFailedError, SaveVetoedError
from threefs_checkpoint.slices import Slice
from threefs_checkpoint.state import Deferred, Shard, State

from tests.harness.checkpoint_files import CheckpointFiles
from tests.harness.clocks import SteppedClock
from tests.harness.ranks import each_rank, outcomes
from threefs.errors import Corrupt, CorruptChunk, InvalidArgument, NotFound, Unavailable

CHUNK = 64 << 10


@pytest.fixture
def fs(tmp_path: Path) -> CheckpointFiles:
    return CheckpointFiles(str(tmp_path))


def manager_of(fs: CheckpointFiles, group: Group | None = None, **options: Any) -> CheckpointManager:
    return CheckpointManager(
        fs, "/c", group=group, **{"chunk_bytes": CHUNK, "staging_bytes": 4 * CHUNK, "every": Every(steps=1), **options}
    )


def state_of(step: int) -> State:
    return {"model.w": np.full(100, step), "optim.m": np.full(300, step)}


def steps_of(fs: CheckpointFiles, kind: str) -> list[int]:
    return [each.step for each in CheckpointDirectory(fs, "/c").published(kind)]


def test_two_slots_hold_the_newest_and_the_one_before(fs: CheckpointFiles) -> None:
    manager = manager_of(fs)
    seen = []
    for step in range(1, 6):
        assert manager.step(step, state_of(step), loss=1.0) == (True, False)
        manager.wait()
        seen.append(steps_of(fs, FULL))
    manager.close()
    assert seen == [[1], [1, 2], [2, 3], [3, 4], [4, 5]]


def test_while_one_is_filled_the_other_is_valid(fs: CheckpointFiles) -> None:
    class Watching(CheckpointFiles):
        def write_file(self, path: str, data: Any, *, exclusive: bool = False) -> None:
            found = CheckpointDirectory(fs, "/c").newest_valid(FULL)
            valid.append(0 if found is None else found[0].step)
            super().write_file(path, data, exclusive=exclusive)

    valid: list[int] = []
    manager = manager_of(Watching(fs.root))
    for step in (1, 2, 3, 4):
        manager.save(step, state_of(step))
    manager.close()
    assert valid == [0, 1, 2, 3]


def test_checkpoints_come_by_the_clock_of_rank_0(fs: CheckpointFiles) -> None:
    def work(group: Group) -> list[bool]:
        clock = SteppedClock(0.0)
        manager = manager_of(fs, group, every=Every(seconds=300), clock=clock)
        found = []
        for step in range(1, 8):
            clock.advance(100 if group.rank == 0 else 0)
            found.append(manager.step(step, state_of(step)).saved)
            manager.wait()
        manager.close()
        return found

    assert each_rank(2, work) == [[False, False, True, False, False, True, False]] * 2


def test_model_only_checkpoints_are_kept_at_their_own_interval(fs: CheckpointFiles) -> None:
    manager = manager_of(fs, every=Every(steps=1), model_every=Every(steps=3))
    for step in range(1, 10):
        manager.step(step, state_of(step))
        manager.wait()
    loaded = manager.load(steps_of(fs, MODEL)[0], model_only=True)
    manager.close()
    assert steps_of(fs, MODEL) == [3, 6, 9]
    assert list(loaded.tensors) == ["model.w"]
    assert len(steps_of(fs, FULL)) == 2


def test_a_model_only_checkpoint_behind_the_full_one_does_not_end_the_job(fs: CheckpointFiles) -> None:
    """A job that was killed goes on from the full one, and comes to a model-only one earlier than before."""
    first = manager_of(fs, model_slots=2)
    first.save(10, state_of(10))
    first.save(16, state_of(16), model_only=True)
    first.close()
    second = manager_of(fs, model_slots=2)
    found = second.resume()
    assert found is not None and found.step == 10
    present = []
    for step in (15, 16, 22):
        second.save(step, state_of(step), model_only=True)
        second.wait()
        present.append(steps_of(fs, MODEL))
    second.save(21, state_of(21), model_only=True)
    with pytest.raises(SaveFailedError, match="older than /c/model-000000000022"):
        second.close()
    assert present == [[15, 16], [15, 16], [16, 22]]


def test_model_only_checkpoints_may_be_few(fs: CheckpointFiles) -> None:
    manager = manager_of(fs, model_slots=2)
    for step in (1, 2, 3):
        manager.save(step, state_of(step), model_only=True)
        manager.wait()
    manager.close()
    assert steps_of(fs, MODEL) == [2, 3]


def test_the_newest_valid_one_is_resumed_on_another_number_of_ranks(fs: CheckpointFiles) -> None:
    whole = np.arange(240).reshape(24, 10)

    def save(group: Group) -> None:
        manager = manager_of(fs, group)
        rows = 24 // group.world
        for step in (1, 2):
            part = whole[group.rank * rows : (group.rank + 1) * rows] * step
            state: State = {"w": Shard(part, (24, 10), (group.rank * rows, 0))}
            manager.save(step, state, metadata={"tokens": step})
        manager.close()

    def load(group: Group) -> Loaded | None:
        manager = manager_of(fs, group)
        rows = 24 // group.world
        try:
            return manager.resume({"w": Slice((group.rank * rows, 0), (rows, 10))})
        finally:
            manager.close()

    each_rank(4, save)
    for world in (1, 2, 3, 8):
        found = [loaded for loaded in each_rank(world, load) if loaded is not None]
        assert (np.concatenate([loaded.tensors["w"] for loaded in found]) == 2 * whole).all()
        assert {(loaded.step, loaded.metadata["tokens"]) for loaded in found} == {(2, 2)}
    content = bytearray(fs._at("/c/step-000000000002/data-00001").read_bytes())
    content[7] ^= 1
    fs._at("/c/step-000000000002/data-00001").write_bytes(content)
    assert [loaded.step for loaded in each_rank(2, load) if loaded is not None] == [1, 1]


def test_a_directory_may_have_a_name_of_any_bytes(fs: CheckpointFiles) -> None:
    def work(group: Group) -> Loaded | None:
        manager = CheckpointManager(fs, "/run \udcff\n", group=group, chunk_bytes=CHUNK, staging_bytes=4 * CHUNK)
        manager.save(1, state_of(1))
        manager.close()
        return manager.resume()

    assert [found is not None and found.step for found in each_rank(2, work)] == [1, 1]


def test_there_may_be_none(fs: CheckpointFiles) -> None:
    assert each_rank(2, lambda group: manager_of(fs, group).resume()) == [None, None]
    found = outcomes(2, lambda group: manager_of(fs, group).load(7))
    assert all(isinstance(error, NotFound) and "/c has no step checkpoint of step 7" in str(error) for error in found)


def test_what_rank_0_cannot_read_fails_all(fs: CheckpointFiles) -> None:
    manager = manager_of(fs)
    manager.save(1, state_of(1))
    manager.close()
    fs._at("/c/step-000000000001/index").write_bytes(b"?")
    found = outcomes(2, lambda group: manager_of(fs, group).load(1))
    assert isinstance(found[0], Corrupt) and isinstance(found[1], Unavailable)


def test_a_rank_that_sees_no_number_stops_the_save_and_names_itself(fs: CheckpointFiles) -> None:
    def work(group: Group) -> None:
        manager = manager_of(fs, group, every=Every(steps=2))
        manager.step(1, state_of(1), loss=math.nan)  # nothing is due
        manager.step(2, state_of(2), loss=math.nan if group.rank == 1 else 0.5)

    for error in outcomes(3, work):
        assert isinstance(error, SaveVetoedError)
        assert "step 2 is not saved: rank 1 on " in str(error) and "loss is nan" in str(error)
    assert steps_of(fs, FULL) == []
    assert not_finite(loss=1.0, gradient_norm=math.inf) == "gradient norm is inf"
    assert not_finite(loss="low") == "loss is low"  # type: ignore[arg-type]
    assert first_not_finite({"a": np.zeros(3), "b": np.array([1, np.nan])}) == "b" and not first_not_finite({})
    carried = Shard(np.array([0x3F80, 0x7FC0], np.uint16), (2,), (0,), "bfloat16")
    assert first_not_finite({"a": np.array([0x7FC0], np.uint16), "b": carried}) == "b"
    assert first_not_finite({"b": Deferred("bfloat16", (1,), lambda: np.array([0x7FC0], np.uint16))}) == "b"


def test_a_signal_to_one_rank_saves_and_ends_all(fs: CheckpointFiles) -> None:
    def work(group: Group) -> list[tuple[bool, bool]]:
        signalled = [False]
        manager = manager_of(fs, group, every=Every(seconds=1e9), exit_signal=lambda: signalled[0])
        found = []
        for step in range(1, 5):
            signalled[0] = group.rank == 1 and step == 3
            outcome = manager.step(step, lambda step=step: state_of(step))  # type: ignore[misc]
            found.append((outcome.saved, outcome.should_exit))
            if outcome.should_exit:
                break
        assert steps_of(fs, FULL) == [3]  # it is there before the job ends
        manager.close()
        return found

    assert each_rank(2, work) == [[(False, False), (False, False), (True, True)]] * 2


def test_masters_replace_parameters_in_full_checkpoints_only(fs: CheckpointFiles) -> None:
    manager = manager_of(fs)
    master = np.linspace(0, 1, 50, dtype=np.float32)
    state: State = {
        "optim.master": master,
        "model.p": Shard((master.view(np.uint32) >> 16).astype(np.uint16), (50,), (0,), "bfloat16"),
    }
    masters = {"model.p": Derived("bfloat16", "optim.master")}
    manager.save(1, state, masters=masters)
    manager.save(1, state, masters=masters, model_only=True)
    manager.wait()
    full, model = manager.load(1), manager.load(1, model_only=True)
    manager.close()
    assert set(full.index.tensors) == {"optim.master"} and set(model.index.tensors) == {"model.p"}
    assert full.tensors["model.p"].dtype == np.uint16
    difference = full.tensors["model.p"].astype(int) - model.tensors["model.p"].astype(int)
    assert set(difference.tolist()) <= {0, 1}  # rounded to nearest, not cut off


def test_the_error_of_a_save_comes_with_the_next_call(fs: CheckpointFiles) -> None:
    class Full(CheckpointFiles):
        def write_batch(self, rows: object) -> None:
            raise Unavailable("storage is gone")

    manager = manager_of(Full(fs.root))
    manager.save(1, state_of(1))
    with pytest.raises(SaveFailedError, match="storage is gone"):
        manager.save(2, state_of(2))
    manager.close()


def test_the_staging_area_stays_within_its_setting(fs: CheckpointFiles) -> None:
    manager = manager_of(fs, staging_bytes=3 * CHUNK + 10)
    for step in (1, 2):
        manager.save(step, {"w": np.zeros(100 * CHUNK, np.uint8)})
    report = manager.wait()
    assert report is not None and report.bytes_written == 100 * CHUNK
    assert manager.staging_peak_bytes == report.staging_peak_bytes == 3 * CHUNK
    manager.close()


def test_one_slot_is_too_few(fs: CheckpointFiles) -> None:
    with pytest.raises(InvalidArgument, match="1 slots are too few"):
        manager_of(fs, slots=1)
    for model_slots in (-1, 1):
        with pytest.raises(InvalidArgument, match=f"model_slots={model_slots} would leave no model-only checkpoint"):
            manager_of(fs, model_slots=model_slots)


@pytest.mark.parametrize("chunk_bytes", [0, CHUNK // 2, CHUNK + 1, 128 << 20])
def test_a_chunk_size_that_files_cannot_have_is_refused_before_the_training_begins(
    fs: CheckpointFiles, chunk_bytes: int
) -> None:
    with pytest.raises(InvalidArgument, match=f"a power of two from 64 KiB to 64 MiB, not {chunk_bytes} bytes"):
        manager_of(fs, chunk_bytes=chunk_bytes)
    assert fs.listing() == []


def test_a_step_that_is_older_than_the_newest_needs_a_rewind(fs: CheckpointFiles) -> None:
    manager = manager_of(fs)
    for step in (10, 20):
        manager.save(step, state_of(step))
    manager.save(15, state_of(15), model_only=True)
    manager.wait()
    manager.save(12, state_of(12))
    with pytest.raises(SaveFailedError, match="older than /c/step-000000000020"):
        manager.wait()
    manager.rewind(10)
    manager.save(12, state_of(12))
    manager.close()
    assert steps_of(fs, FULL) == [10, 12] and steps_of(fs, MODEL) == []


def test_behind_a_rewind_saves_are_due_as_they_were(fs: CheckpointFiles) -> None:
    manager = manager_of(fs, every=Every(steps=10))
    for step in range(1, 51):
        manager.step(step, state_of(step))
        manager.wait()
    again = manager_of(fs, every=Every(steps=10))
    for each in (manager, again):
        each.rewind(40)
        saved = [step for step in range(41, 71) if each.step(step, state_of(step)).saved and each.wait()]
        each.close()
        assert saved == [50, 60, 70]


def test_a_choice_of_tensors_that_fails_on_one_rank_fails_on_all(fs: CheckpointFiles) -> None:
    def work(group: Group) -> Loaded | None:
        manager = manager_of(fs, group)
        manager.save(1, state_of(1))
        manager.wait()

        def choose(index: Index) -> dict[str, Slice]:
            return {} if group.rank else {"x": index.tensors["x"].shards[0].part}

        try:
            return manager.resume(choose)
        finally:
            manager.close()

    found = outcomes(2, work)
    assert isinstance(found[0], KeyError)
    assert isinstance(found[1], Unavailable) and "rank 0" in str(found[1]) and "KeyError" in str(found[1])


def test_a_checkpoint_that_goes_while_it_is_loaded_gives_way_to_the_newest(fs: CheckpointFiles) -> None:
    """As where one job evaluates what another one saves."""
    saving = manager_of(fs)
    saving.save(1, state_of(1))
    saving.wait()

    class Late(CheckpointFiles):
        late = True

        def read_batch(self, rows: Any, into: Any = None) -> list[memoryview]:
            if self.late and "/data-" in str(rows[0][0]):
                self.late = False
                for step in (2, 3):
                    saving.save(step, state_of(step))
                    saving.wait()
            return super().read_batch(rows, into)

    def work(group: Group) -> Loaded | None:
        return manager_of(Late(fs.root) if group.rank == 0 else fs, group).resume()

    for found in each_rank(2, work):
        assert found is not None and found.step == 3 and (found.tensors["optim.m"] == 3).all()
    saving.close()


@pytest.mark.parametrize("kept", [0, 1])
def test_a_checkpoint_that_goes_while_it_is_looked_at_gives_way_to_the_newest(fs: CheckpointFiles, kept: int) -> None:
    """A job that starts must not take that for a directory without checkpoints, and begin at the first step."""
    saving = manager_of(fs)
    for step in range(1, 2 + kept):
        saving.save(step, state_of(step))
        saving.wait()

    class Late(CheckpointFiles):
        late = True

        def stat(self, path: str, *, follow: bool = True) -> Any:
            if self.late and path.endswith("/index"):
                self.late = False
                for step in (5, 6, 7):
                    saving.save(step, state_of(step))
                    saving.wait()
            return super().stat(path, follow=follow)

    found = manager_of(Late(fs.root)).resume()
    assert found is not None and found.step == 7
    saving.close()


@pytest.mark.parametrize(("is_resumed", "waiting"), [(True, 1), (True, 2), (False, 1)])
def test_a_checkpoint_that_is_replaced_while_it_is_loaded_is_not_damaged(
    fs: CheckpointFiles, is_resumed: bool, waiting: int
) -> None:
    """A job saves its last step again, and another one evaluates it: index and data of two were taken for one."""
    saving = manager_of(fs)
    saving.save(1, state_of(1))
    saving.wait()

    class Late(CheckpointFiles):
        calls = 0

        def again(self) -> None:
            self.calls += 1
            if self.calls == waiting:
                saving.save(1, state_of(2))
                saving.wait()

        def read_batch(self, rows: Any, into: Any = None) -> list[memoryview]:
            if "/data-" in str(rows[0][0]):
                self.again()
            return super().read_batch(rows, into)

        def chunk_checksums(self, files: Any) -> Any:
            self.again()
            return super().chunk_checksums(files)

    manager = manager_of(Late(fs.root))
    found = manager.resume() if is_resumed else manager.load(1)
    assert found is not None and (found.tensors["optim.m"] == 2).all()
    assert not manager._damaged
    saving.close()


def test_an_exit_saves_the_state_although_the_save_before_has_failed(fs: CheckpointFiles) -> None:
    class Weak(CheckpointFiles):
        fails = True

        def write_batch(self, rows: Any) -> None:
            if self.fails:
                raise Unavailable("storage is gone")
            super().write_batch(rows)

    weak, signalled = Weak(fs.root), [False]
    manager = manager_of(weak, every=Every(seconds=1e9), exit_signal=lambda: signalled[0])
    manager.save(1, state_of(1))
    while manager._saver.busy:
        pass
    weak.fails, signalled[0] = False, True
    assert manager.step(2, state_of(2)).should_exit
    manager.close()
    assert steps_of(fs, FULL) == [2]


def test_what_somebody_else_removes_does_not_fail_a_save(fs: CheckpointFiles) -> None:
    left = CheckpointDirectory(fs, "/c").begin(FULL, 1)

    class Beside(CheckpointFiles):
        def rename(self, source: str, destination: str, *, replace: bool = True) -> None:
            if source == left:
                CheckpointDirectory(fs, "/c").remove(left)
            super().rename(source, destination, replace=replace)

    manager = manager_of(Beside(fs.root))
    manager.save(2, state_of(2))
    manager.close()
    assert steps_of(fs, FULL) == [2]


class Rotten(CheckpointFiles):
    """Some checkpoints have lost bytes, of which storage's records know nothing yet."""

    lost: tuple[int, ...] = ()

    def read_batch(self, rows: Any, into: Any = None) -> list[memoryview]:
        if any(f"/step-{step:012d}/data-" in str(row[0]) for row in rows for step in self.lost):
            raise CorruptChunk("bytes 0 to 4096 fail their checksum")
        return super().read_batch(rows, into)


def test_a_checkpoint_that_has_lost_bytes_gives_way_to_the_one_before(fs: CheckpointFiles) -> None:
    first = manager_of(fs)
    for step in (10, 20):
        first.save(step, state_of(step))
    first.close()
    rotten = Rotten(fs.root)
    rotten.lost = (20,)

    def work(group: Group) -> list[int]:
        manager = manager_of(rotten if group.rank == 1 else fs, group)
        found = manager.resume()
        assert found is not None and (found.tensors["optim.m"] == 10).all()
        present = []
        for step in (11, 12, 20):
            manager.save(step, state_of(step))
            manager.wait()
            present.append(steps_of(fs, FULL))
        manager.close()
        return [found.step, *present]  # type: ignore[list-item]

    for found in each_rank(2, work):
        assert found == [10, [10, 11, 20], [11, 12, 20], [12, 20]], "the valid one stays while another one is filled"
    last = manager_of(fs).resume()
    assert last is not None and last.step == 20


def test_ranks_that_read_for_themselves_pass_over_the_same_checkpoint(fs: CheckpointFiles) -> None:
    first = manager_of(fs)
    for step in (10, 20):
        first.save(step, state_of(step))
    first.close()
    rotten = Rotten(fs.root)
    rotten.lost = (20,)

    def work(group: Group) -> Loaded | None:
        return manager_of(rotten if group.rank == 1 else fs, group).resume(read_once=False)

    assert [found is not None and found.step for found in each_rank(2, work)] == [10, 10]


def test_a_job_whose_checkpoints_are_all_damaged_does_not_begin_anew(fs: CheckpointFiles) -> None:
    first = manager_of(fs)
    for step in (10, 20):
        first.save(step, state_of(step))
    first.close()
    rotten = Rotten(fs.root)
    rotten.lost = (10, 20)
    with pytest.raises(Corrupt, match=r"step-000000000020: bytes 0 to 4096 fail.*; bytes .*ckpt verify --read"):
        manager_of(rotten).resume()
    for step in (10, 20):
        fs.remove(f"/c/step-{step:012d}/data-00000")
    found = outcomes(2, lambda group: manager_of(fs, group).resume())
    assert isinstance(found[0], Corrupt) and isinstance(found[1], Unavailable)


def test_behind_damaged_checkpoints_a_job_goes_on_saving(fs: CheckpointFiles) -> None:
    first = manager_of(fs)
    for step in (10, 20):
        first.save(step, state_of(step))
    first.close()
    fs.remove("/c/step-000000000020/data-00000")
    manager = manager_of(fs)
    found = manager.resume()
    assert found is not None and found.step == 10
    for step in (11, 12):
        manager.save(step, state_of(step))
    manager.wait()
    manager.save(9, state_of(9))
    with pytest.raises(SaveFailedError, match="older than /c/step-000000000012"):
        manager.close()
    assert steps_of(fs, FULL) == [11, 12, 20]
