"""The checkpoints of a job: when they are saved, how many are kept, and the newest valid one is loaded."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from numpy.typing import NDArray

from threefs.env.clock import CLOCK, Clock
from threefs.errors import Corrupt, CorruptChunk, InvalidArgument, NotADirectory, NotFound, ThreefsError
from threefs.layout import check_chunk_bytes
from threefs_checkpoint import index as indexes
from threefs_checkpoint import loading, save_interval
from threefs_checkpoint.dtypes import element_type, is_finite
from threefs_checkpoint.filesystem_protocol import FileSystem
from threefs_checkpoint.group import Group, SingleGroup
from threefs_checkpoint.index import Index
from threefs_checkpoint.job_directory import FULL, MODEL, CheckpointDirectory, Published, read_index
from threefs_checkpoint.loading import LoadReport
from threefs_checkpoint.save_interval import Every
from threefs_checkpoint.saving import CHUNK_BYTES, STAGING_BYTES, SaveFailedError, Saver, SaveReport
from threefs_checkpoint.slices import Slice
from threefs_checkpoint.state import Deferred, Masters, Shard, State

#: One is valid while the other is being filled.
SLOTS = 2
MODEL_PREFIX = "model."


@dataclass(slots=True)
class Loaded:
    """A checkpoint that was loaded."""

    step: int
    path: str
    tensors: dict[str, NDArray[Any]]
    index: Index
    report: LoadReport = field(default_factory=LoadReport)

    @property
    def metadata(self) -> Any:
        return self.index.metadata


class StepOutcome(NamedTuple):
    """The result of `CheckpointManager.step`. The same on all ranks."""

    saved: bool  # a save has begun; or it has ended, before an exit
    should_exit: bool  # the scheduler ends the job, and its state is saved


class _Slot(NamedTuple):
    """Where a save of the manager goes."""

    directory: CheckpointDirectory
    kind: str
    step: int
    keep: int | None  # older ones to keep; None: all
    damaged: set[str]  # paths of those that could not be loaded
    superseded: set[str]  # and of those behind the one from which the training goes on

    def begin(self) -> str:
        published = self.directory.published(self.kind)
        if published and published[-1].step > self.step:
            self._refuse_older_step()
        self.directory.make_room(self.kind, self.keep, damaged=self.damaged | self.superseded)
        return self.directory.begin(self.kind, self.step)

    def _refuse_older_step(self) -> None:
        """Behind damaged ones a job goes on from an older one, and saves older steps than theirs. Model-only ones may
        be newer than the full one from which a job goes on."""
        newest = self.directory.newest_valid(self.kind, damaged=self.damaged | self.superseded)
        if newest is not None and newest[0].step > self.step:
            raise InvalidArgument(
                f"step {self.step} is older than {newest[0].path}, so it would be removed before that one: "
                "`rewind` removes the checkpoints of later steps"
            )

    def publish(self, path: str) -> str:
        final = self.directory.publish(path, self.kind, self.step)
        self.damaged.discard(final)
        self.superseded.discard(final)
        return final

    def abandon(self, path: str) -> None:
        self.directory.remove(path)


class CheckpointManager:
    """Every rank of a job makes one at the same time, and makes the same calls.

    manager = CheckpointManager(fs, "/checkpoints/run-7", group=group)
    found = manager.resume()
    for step in ...:
        loss = train(...)
        if manager.step(step, state, loss=loss).should_exit:
            break
    manager.close()
    """

    def __init__(
        self,
        fs: FileSystem,
        root: str,
        *,
        group: Group | None = None,
        every: Every = save_interval.DEFAULT,
        model_every: Every | None = None,
        slots: int = SLOTS,
        model_slots: int = 0,
        staging_bytes: int = STAGING_BYTES,
        chunk_bytes: int = CHUNK_BYTES,
        exit_signal: Callable[[], bool] = lambda: False,
        is_model: Callable[[str], bool] = lambda name: name.startswith(MODEL_PREFIX),
        clock: Clock = CLOCK,
    ) -> None:
        """Checkpoints lie in the directory `root`, which belongs to this job.

        `slots` checkpoints take space at most: while one is filled, `slots` - 1 valid ones exist. Model-only
        checkpoints have the tensors of which `is_model` is true; of them `model_slots` take space at most (0: all are
        kept). Raises InvalidArgument for numbers and sizes that are not possible.
        """
        check_chunk_bytes(chunk_bytes)
        if slots < 2:
            raise InvalidArgument(f"{slots} slots are too few: one checkpoint is valid while another one is filled")
        if model_slots < 0 or model_slots == 1:
            raise InvalidArgument(
                f"model_slots={model_slots} would leave no model-only checkpoint while another one is filled; give 0 "
                "to keep all, or 2 and more"
            )
        self._fs = fs
        self._group = group or SingleGroup()
        self._directory = CheckpointDirectory(fs, root)
        self._every = {FULL: every, MODEL: model_every}
        self._keep = {FULL: slots - 1, MODEL: model_slots - 1 if model_slots else None}
        self._exit_signal = exit_signal
        self._is_model = is_model
        self._clock = clock
        self._saver = Saver(fs, self._group, staging_bytes=staging_bytes, chunk_bytes=chunk_bytes, clock=clock)
        self._last = {kind: (0, clock.monotonic()) for kind in (FULL, MODEL)}
        #: Paths of what could not be loaded, although storage has recorded it as it should be.
        self._damaged = set[str]()
        #: On rank 0, paths of checkpoints of later steps than that from which the training goes on.
        self._superseded = set[str]()
        root = self._directory.root
        loading.agree(self._group, lambda: fs.mkdir(root, parents=True) if self._group.rank == 0 else None)

    @property
    def staging_peak_bytes(self) -> int:
        """The most memory that the staging area of this rank has had."""
        return self._saver.staging_peak_bytes

    def close(self) -> None:
        """Return when the last save has ended. Raises its error."""
        try:
            self._saver.wait()
        finally:
            self._saver.close()

    # ---- saving ----

    def save(
        self,
        step: int,
        state: State | Callable[[], State],
        *,
        model_only: bool = False,
        masters: Masters | None = None,
        metadata: Any = None,
        veto: str = "",
    ) -> None:
        """Copy the state, and save it beside the training. `wait` has the end of it.

        `masters` name parameters that are not saved in a full checkpoint, because their values follow from master
        copies of the optimizer. Raises SaveVetoedError if a rank has a veto, and SaveFailedError if the save before has
        failed, or ranks disagree.
        """
        kind = MODEL if model_only else FULL

        def chosen() -> State:
            given = state() if callable(state) else state
            return {name: value for name, value in given.items() if self._is_model(name)} if model_only else given

        slot = _Slot(self._directory, kind, step, self._keep[kind], self._damaged, self._superseded)
        masters = None if model_only else masters
        self._saver.save(step, chosen, slot, masters=masters, metadata=metadata, veto=veto)
        self._last[kind] = step, self._clock.monotonic()

    def wait(self) -> SaveReport | None:
        """The report of the last save, when it has ended; None if there was none. Raises SaveFailedError."""
        return self._saver.wait()

    def step(
        self,
        step: int,
        state: State | Callable[[], State],
        *,
        loss: float | None = None,
        gradient_norm: float | None = None,
        masters: Masters | None = None,
        metadata: Any = None,
    ) -> StepOutcome:
        """A step of the training has ended. Saves if a checkpoint is due, on all ranks or on none.

        The clock of rank 0 decides. If a rank's loss or gradient norm is not finite, what is due is not saved:
        SaveVetoedError names that rank and its host. After the scheduler's signal, to whichever rank it came, the state
        is saved and the outcome says that the job should exit; a save before it that has failed does not matter then.
        `state` may be a function, which is called only if something is due.
        """
        due = [kind for kind in (MODEL, FULL) if self._is_due(kind, step)]  # the rare ones first
        said = {"due": due, "busy": self._saver.busy, "exit": self._exit_signal()}
        everyone = [json.loads(message) for message in self._group.all_gather(json.dumps(said).encode())]
        should_exit = any(other["exit"] for other in everyone)
        kinds = everyone[0]["due"] if not any(other["busy"] for other in everyone) else []
        if should_exit:
            kinds = [FULL]
            with suppress(SaveFailedError):  # of an older state, whose place this one takes
                self.wait()
        if kinds:  # one at a time; the other one stays due
            veto = not_finite(loss=loss, gradient_norm=gradient_norm)
            self.save(step, state, model_only=kinds[0] == MODEL, masters=masters, metadata=metadata, veto=veto)
        if should_exit:
            self.wait()
        return StepOutcome(bool(kinds), should_exit)

    def _is_due(self, kind: str, step: int) -> bool:
        every, (last_step, last_s) = self._every[kind], self._last[kind]
        return every is not None and every.is_due(step, last_step, self._clock.monotonic(), last_s)

    # ---- loading ----

    def resume(
        self,
        names: Sequence[str] | Mapping[str, Slice] | Callable[[Index], Mapping[str, Slice]] | None = None,
        *,
        model_only: bool = False,
        read_once: bool = True,
        into: Mapping[str, NDArray[Any]] | None = None,
    ) -> Loaded | None:
        """Load the newest valid checkpoint; None if there is none. Each rank names what it needs, as in `load`.

        One of which storage has lost bytes is passed over, too. Another job may save here: if it removes or replaces a
        checkpoint while that is loaded, the newest one is loaded then. Raises Corrupt if there are checkpoints, and
        each is damaged.
        """
        kind = MODEL if model_only else FULL
        reasons: list[str] = []  # of those that were passed over
        loaded: Loaded | None = None
        while loaded is None:
            content = self._told_by_rank_0(lambda: self._newest(kind, reasons))
            if not content:
                return None
            try:
                loaded = self._load(content, names, read_once, into)
            except Exception as error:  # it has failed on all ranks, each with its own error
                if self._is_gone(content):
                    continue
                if not self._is_damage(error):
                    raise
                self._damaged.add(_path_in(content))
                reasons.append(str(error))
        self._last = {each: (max(loaded.step, last), at) for each, (last, at) in self._last.items()}
        self._supersede(loaded.step)
        return loaded

    def _supersede(self, step: int) -> None:
        def find() -> None:
            if self._group.rank == 0:
                self._superseded.clear()
                self._superseded.update(each.path for each in self._published() if each.step > step)

        loading.agree(self._group, find)

    def load(
        self,
        step: int,
        names: Sequence[str] | Mapping[str, Slice] | Callable[[Index], Mapping[str, Slice]] | None = None,
        *,
        model_only: bool = False,
        read_once: bool = True,
        into: Mapping[str, NDArray[Any]] | None = None,
    ) -> Loaded:
        """Load the checkpoint of a step: all tensors, those of these names, or slices of them. A function is given the
        index, and returns the slices.

        With `read_once` each byte is read from storage by one rank, which passes it on to the others that need it.
        Tensors that `into` has are loaded into its arrays. Raises NotFound, Corrupt.
        """
        kind = MODEL if model_only else FULL

        def find() -> tuple[Published, Index] | None:
            found = [each for each in self._directory.published(kind) if each.step == step]
            return (found[0], read_index(self._fs, found[0].path)) if found else None

        while content := self._told_by_rank_0(find):
            try:
                return self._load(content, names, read_once, into)
            except Exception:
                if not self._is_gone(content):
                    raise
        raise NotFound(f"{self._directory.root} has no {kind} checkpoint of step {step}")

    def rewind(self, step: int) -> None:
        """Remove the checkpoints of later steps than `step`, before training goes on from that one again."""

        def remove() -> None:
            for each in self._directory.published():
                if self._group.rank == 0 and each.step > step:
                    self._directory.remove(each.path)

        self._saver.wait()
        loading.agree(self._group, remove)
        self._last = {kind: (step, at) for kind, (_, at) in self._last.items()}  # else nothing is due until then again

    def _told_by_rank_0(self, find: Callable[[], tuple[Published, Index] | None]) -> bytes:
        """Path and index of a checkpoint that rank 0 finds, for all ranks; empty if there is none."""
        content = b""

        def work() -> None:
            nonlocal content
            found = find() if self._group.rank == 0 else None
            content = b"" if found is None else _encoded_path(found[0].path) + b"\0" + indexes.encode(found[1])

        loading.agree(self._group, work)
        return self._group.from_rank_0(content)

    def _newest(self, kind: str, reasons: Sequence[str]) -> tuple[Published, Index] | None:
        """Raises Corrupt if all are damaged: a job that began anew then would be a surprise."""
        found, before = self._directory.newest_valid(kind, damaged=self._damaged), list[Published]()
        while found is None and before != (before := self._published(kind)):  # until nobody else changes them
            found = self._directory.newest_valid(kind, damaged=self._damaged)
        if found is None and before:
            raise Corrupt(
                f"each {kind} checkpoint in {self._directory.root} is damaged, also the newest one, {before[-1].name}: "
                + "".join(f"{reason}; " for reason in reasons)
                + "`threefs ckpt verify --read` says what is wrong with each; remove them to begin anew"
            )
        return found

    def _published(self, kind: str | None = None) -> list[Published]:
        try:
            return self._directory.published(kind)
        except NotFound:
            return []

    def _is_damage(self, error: Exception) -> bool:
        """Whether a rank has failed because bytes are not those of the index, or are lost."""
        own = b"damage" if isinstance(error, Corrupt | CorruptChunk) else b""
        return any(self._group.all_gather(own))

    def _is_gone(self, content: bytes) -> bool:
        """Whether what rank 0 has told of was removed or replaced since."""
        gone = False
        if self._group.rank == 0:
            try:
                index = indexes.encode(read_index(self._fs, _path_in(content)))
                gone = index != content.partition(b"\0")[2]
            except (NotFound, NotADirectory):
                gone = True
            except ThreefsError:  # the first error is the one to show
                pass
        return bool(self._group.all_gather(b"gone" if gone else b"")[0])

    def _load(self, content: bytes, names: Any, read_once: bool, into: Mapping[str, NDArray[Any]] | None) -> Loaded:
        where = _path_in(content)
        index = indexes.decode(content.partition(b"\0")[2], where)
        wanted: dict[str, Slice] = {}

        def choose() -> None:
            wanted.update(names(index) if callable(names) else loading.wanted_of(index, names))

        loading.agree(self._group, choose)
        loaded = Loaded(index.step, where, {}, index)

        def read() -> None:
            loaded.tensors = loading.load(
                self._fs, where, index, wanted, group=self._group, read_once=read_once, into=into, report=loaded.report
            )

        loading.agree(self._group, read)  # ranks that read for themselves fail by themselves
        return loaded


def _encoded_path(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")  # a name may be any bytes


def _path_in(content: bytes) -> str:
    """Of what rank 0 has told."""
    return content.partition(b"\0")[0].decode("utf-8", "surrogateescape")


def not_finite(**values: float | None) -> str:
    """Says which of the values is not a finite number; empty if all are."""
    for name, value in values.items():
        try:
            is_good = value is None or math.isfinite(value)
        except Exception:  # of whatever was given as a number: the other ranks wait to hear of it
            is_good = False
        if not is_good:
            return f"{name.replace('_', ' ')} is {value}"
    return ""


def first_not_finite(state: State) -> str:
    """The name of the first tensor with a value that is not finite, for a veto; empty if there is none. A type that the
    array only carries counts."""
    for name, value in state.items():
        if isinstance(value, Deferred):
            array, dtype = value.load(), value.dtype
        else:
            array, dtype = (value.array, value.dtype) if isinstance(value, Shard) else (value, "")
        if not is_finite(array, element_type(name, array, dtype)):
            return name
    return ""
