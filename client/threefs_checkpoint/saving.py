"""One save at a time, of all ranks: agree, copy, then write, verify and publish beside the training."""

import json
import operator
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from threefs.env.clock import CLOCK, Clock
from threefs.env.side_thread import PendingCall, SideThread
from threefs.errors import InvalidArgument, NotFound, ThreefsError
from threefs_checkpoint import index as indexes
from threefs_checkpoint import sharding
from threefs_checkpoint.data_file import DataFile
from threefs_checkpoint.filesystem_protocol import FileSystem
from threefs_checkpoint.group import Group, SingleGroup
from threefs_checkpoint.index import INDEX_NAME, Derived, Index, StoredShard, Tensor, data_name
from threefs_checkpoint.job_directory import identity
from threefs_checkpoint.sharding import HeldShard
from threefs_checkpoint.staging import StagingArea
from threefs_checkpoint.state import HeldState, Masters, State, described
from threefs_checkpoint.verification import verify_content

#: A row of a batch, and the piece that has a checksum of its own. Larger than that of other files: fewer rows.
CHUNK_BYTES = 4 << 20
STAGING_BYTES = 2 << 30


class SaveFailedError(RuntimeError):
    """A checkpoint could not be saved. The message names the rank and its host. The older checkpoints are as before."""


class SaveVetoedError(SaveFailedError):
    """A rank has seen what must not be saved: its loss or a gradient is not finite."""


class Destination(Protocol):
    """Where rank 0 puts a checkpoint."""

    def begin(self) -> str:
        """Make the directory to fill, under a name that is not that of a checkpoint; returns its path."""
        ...

    def publish(self, path: str) -> str:
        """Give it its name by one rename; returns its path."""
        ...

    def abandon(self, path: str) -> None:
        """Remove what was filled in vain."""
        ...


@dataclass(frozen=True, slots=True)
class SaveReport:
    """The result of a save on this rank."""

    step: int
    path: str
    bytes_written: int  # by this rank
    stall_s: float  # training waited: to agree, and to copy
    copy_s: float  # of that, to copy
    background_s: float  # from the end of the copy to the publication
    staging_peak_bytes: int


class _Plan(NamedTuple):
    """The part that each rank writes. The same for every save while the ranks hold the same shards."""

    tensors: dict[str, HeldShard]  # one of the shards of each
    files: list[DataFile]  # of each rank


class _Save(NamedTuple):
    """A save that has begun."""

    step: int
    plan: _Plan
    destination: Destination
    masters: Masters
    metadata: Any
    stall_began: float
    copied: list[float]  # the times of the begin and the end of the copy, once it has succeeded


class Saver:
    def __init__(
        self,
        fs: FileSystem,
        group: Group | None = None,
        *,
        staging_bytes: int = STAGING_BYTES,
        chunk_bytes: int = CHUNK_BYTES,
        clock: Clock = CLOCK,
    ) -> None:
        """Every rank makes one at the same time. Raises InvalidArgument for sizes that are not possible."""
        indexes.check_chunk_bytes(chunk_bytes)
        self._fs = fs
        self._group = group or SingleGroup()
        self._beside = self._group.twin()
        self._chunk_bytes = chunk_bytes
        self._area = StagingArea(staging_bytes, chunk_bytes)
        self._thread = SideThread("threefs-checkpoint")
        self._clock = clock
        self._plans: dict[tuple[str, ...], _Plan] = {}
        self._pending: PendingCall[SaveReport] | None = None
        self._closed = False

    @property
    def busy(self) -> bool:
        """Whether a save goes on."""
        return self._pending is not None and not self._pending.done()

    @property
    def staging_peak_bytes(self) -> int:
        return self._area.peak_bytes

    def wait(self) -> SaveReport | None:
        """The report of the last save, when it has ended; None if there is none. Raises its error, once."""
        pending = self._pending
        if pending is None:
            return None
        try:
            return pending.result()
        finally:
            if pending.done() and pending.exception() is not None:  # else the wait was broken off, and the save goes on
                self._pending = None

    def break_off(self) -> None:
        """The save that goes on fails soon, and publishes nothing, unless it has done so."""
        self._area.break_off()

    def close(self) -> None:
        """Return when the last save has ended."""
        self._closed = True
        self._thread.close()
        if self._beside is not self._group:
            self._beside.close()

    def save(
        self,
        step: int,
        state: State | Callable[[], State],
        destination: Destination,
        *,
        masters: Masters | None = None,
        metadata: Any = None,
        veto: str = "",
    ) -> None:
        """Copy the state, and return. `wait` has the end of the save. The arrays may change when this returns.

        Every rank calls it, with the same step. A function is called for the state. The metadata are those of rank 0.
        With a `veto`, which says why, no rank saves: SaveVetoedError. Raises SaveFailedError if the ranks disagree, or
        the save before has failed.
        """
        if self._closed:
            raise InvalidArgument(f"step {step} is not saved: the manager was closed; make another one")
        began = self._clock.monotonic()
        self.wait()
        masters = masters or {}
        mine: HeldState | None = None
        try:
            step = _checked_step(step)
            mine = described(state() if callable(state) else state, masters)
            indexes.encode(Index(step, 1, 0, self._chunk_bytes, (), {}, {}, metadata))
        except Exception as error:  # whatever it is: the other ranks wait to hear of it
            self._agree(step if isinstance(step, int) else -1, "", "", error)
            raise
        plan = self._plan(mine, self._agree(step, mine.digest, veto, None))
        saving = _Save(step, plan, destination, masters, metadata, began, [])
        self._area.begin()
        try:
            self._pending = self._thread.start(lambda: self._finish(saving))
            start = self._clock.monotonic()
            plan.files[self._group.rank].stage(self._area, mine.arrays)
            saving.copied[:] = start, self._clock.monotonic()
        finally:
            self._area.end()

    def _agree(self, step: int, digest: str, veto: str, error: Exception | None) -> list[str]:
        """The digests of all ranks."""
        said = {"step": step, "digest": digest, "veto": veto, "error": _shown(error), "host": os.uname().nodename}
        everyone = [json.loads(message) for message in self._group.all_gather(json.dumps(said).encode())]
        for rank, other in enumerate(everyone):
            if other["veto"]:
                raise SaveVetoedError(f"step {step} is not saved: rank {rank} on {other['host']}: {other['veto']}")
        for rank, other in enumerate(everyone):
            if other["error"] and error is None:
                raise SaveFailedError(f"rank {rank} on {other['host']}: {other['error']}")
            if other["step"] != step and error is None:
                raise SaveFailedError(f"rank {rank} on {other['host']} saves step {other['step']}, this one {step}")
        return [other["digest"] for other in everyone]

    def _plan(self, mine: HeldState, digests: Sequence[str]) -> _Plan:
        key = tuple(digests)
        if key not in self._plans:
            everyone = [sharding.decode(message) for message in self._group.all_gather(sharding.encode(mine.held))]
            assigned = sharding.assign(everyone)
            tensors = {shard.name: shard for held in everyone for shard in held}
            files = [DataFile(rank, shards, self._chunk_bytes) for rank, shards in enumerate(assigned)]
            self._plans = {key: _Plan({name: tensors[name] for name in sorted(tensors)}, files)}
        return self._plans[key]

    # ---- beside the training ----

    def _finish(self, saving: _Save) -> SaveReport:
        path = ""
        try:
            rank = self._group.rank
            begun = self._phase(lambda: saving.destination.begin() if rank == 0 else "")
            path = begun[0]
            written = self._phase(lambda: self._write(saving, path), path)
            final = self._phase(lambda: self._publish(saving, path, written) if rank == 0 else "", path)[0]
        except BaseException:
            if path and rank == 0:
                with suppress(ThreefsError):  # the reason for giving up is the error to show
                    saving.destination.abandon(path)
            raise
        finally:
            self._area.discard()
        start, end = saving.copied
        return SaveReport(
            step=saving.step,
            path=final,
            bytes_written=saving.plan.files[rank].length,
            stall_s=end - saving.stall_began,
            copy_s=end - start,
            background_s=self._clock.monotonic() - end,
            staging_peak_bytes=self._area.peak_bytes,
        )

    def _phase(self, work: Callable[[], str], path: str = "") -> list[str]:
        """The results of the work of all ranks, on the directory `path`. If it fails on one rank, it fails on all."""
        failure: BaseException | None = None
        said: dict[str, str] = {}
        try:
            said["result"] = work()
        except Exception as error:
            failure = error
            said = {"error": f"{type(error).__name__}: {error}{self._hint(error, path)}", "host": os.uname().nodename}
        everyone = [json.loads(message) for message in self._beside.all_gather(json.dumps(said).encode())]
        for rank, other in enumerate(everyone):
            if "error" in other:
                raise SaveFailedError(f"rank {rank} on {other['host']}: {other['error']}") from failure
        return [other["result"] for other in everyone]

    def _hint(self, error: Exception, path: str) -> str:
        if path and isinstance(error, NotFound):
            with suppress(ThreefsError):
                if identity(self._fs, path) is None:
                    return f"; {path} is gone: does another job save there? Each job needs a directory of its own"
        return ""

    def _write(self, saving: _Save, path: str) -> str:
        """Write the data file of this rank. Returns the checksums of its shards, for rank 0."""
        file = saving.plan.files[self._group.rank]
        where = f"{path}/{data_name(file.number)}"
        crcs = file.write(self._fs, where, self._area)
        self._area.discard()  # waits for the end of the copy, also where this rank has nothing to write
        if not saving.copied:
            raise InvalidArgument("the copy of the state was broken off")
        file.verify(self._fs, where, crcs)
        return json.dumps([[indexes.crc_digits(each) for each in crcs], saving.masters])

    def _publish(self, saving: _Save, path: str, written: Sequence[str]) -> str:
        index = self._index(saving, written)
        content = indexes.encode(index)
        where = f"{path}/{INDEX_NAME}"
        indexes.decode(content, where)  # what cannot be loaded is not published
        self._fs.write_file(where, content, exclusive=True)
        verify_content(self._fs, where, content)
        self._area.check()
        return saving.destination.publish(path)

    def _index(self, saving: _Save, written: Sequence[str]) -> Index:
        shards: dict[str, list[StoredShard]] = {name: [] for name in saving.plan.tensors}
        derived: dict[str, Derived] = {}
        for file, message in zip(saving.plan.files, written, strict=True):
            digits_of_shards, masters = json.loads(message)
            derived |= {name: Derived(*of) for name, of in masters.items()}
            crcs = [indexes.crcs_of(digits) for digits in digits_of_shards]
            for held, stored in zip(file.shards, file.stored(crcs), strict=True):
                shards[held.name].append(stored)
        tensors = {
            name: Tensor(name, held.dtype, held.shape, tuple(shards[name]))
            for name, held in saving.plan.tensors.items()
        }
        for name, of in derived.items():
            if of.master not in tensors:
                raise InvalidArgument(f"no rank has the master copy {of.master!r} of tensor {name!r}")
        return Index(
            step=saving.step,
            world=self._group.world,
            saved_ns=self._clock.wall_ns(),
            chunk_bytes=self._chunk_bytes,
            file_bytes=tuple(file.length for file in saving.plan.files),
            tensors=tensors,
            derived=derived,
            metadata=saving.metadata,
        )


def _checked_step(step: object) -> int:
    """Also a whole number of numpy. Raises InvalidArgument."""
    try:
        number = operator.index(step)  # type: ignore[arg-type]
    except TypeError:
        raise InvalidArgument(f"the step of a checkpoint is a whole number, not {step!r}") from None
    return int(number)


def _shown(error: Exception | None) -> str:
    """Empty if there is none."""
    if error is None:
        return ""
    return str(error) if isinstance(error, ThreefsError) else f"{type(error).__name__}: {error}"
