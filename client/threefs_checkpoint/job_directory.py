"""The directory of a job's checkpoints: their names, one rename that publishes one, and room for the next.

    step-000000001200/                a checkpoint: `index` and the data files
    model-000000001000/               a model-only checkpoint
    saving-<token>-step-...           not published: of a save that goes on, or that ended half-way
    removing-<token>-...              being removed

A checkpoint is filled and verified under another name, and gets its own by one rename. Before it is removed, it loses
its name by one rename. So what has the name of a checkpoint is whole, whenever a program is killed.
"""

import re
from collections.abc import Collection
from contextlib import suppress
from typing import NamedTuple

from threefs.env.random import RANDOM, Random
from threefs.errors import (
    AlreadyExists,
    Corrupt,
    CorruptChunk,
    InvalidArgument,
    NotADirectory,
    NotFound,
    TooManySymlinks,
)
from threefs_checkpoint import index as indexes
from threefs_checkpoint.filesystem_protocol import FileSystem
from threefs_checkpoint.index import INDEX_NAME, Index
from threefs_checkpoint.verification import verify

FULL, MODEL = "step", "model"
MAX_STEP = 10**12 - 1

_NAME = re.compile(rf"({FULL}|{MODEL})-(\d{{12}})")
_SAVING, _REMOVING = "saving-", "removing-"
_TOKEN_BYTES = 8
#: The rest of a save or a removal that did not end. Other names are of somebody who shares the directory.
_LEFT = re.compile(rf"({_SAVING}[0-9a-f]{{16}}-({FULL}|{MODEL})-\d{{12}}|{_REMOVING}[0-9a-f]{{16}}-.+)", re.DOTALL)


#: Errors that say of a path that it has no checkpoint, or a damaged one.
DAMAGE = (Corrupt, CorruptChunk, NotADirectory, NotFound, TooManySymlinks)


class Published(NamedTuple):
    """A checkpoint of a directory."""

    step: int
    kind: str  # FULL or MODEL
    path: str

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


def name_of(kind: str, step: int) -> str:
    if not 0 <= step <= MAX_STEP:
        raise InvalidArgument(f"the step of a checkpoint is a number from 0 to {MAX_STEP}, not {step}")
    return f"{kind}-{step:012d}"


def read_index(fs: FileSystem, path: str) -> Index:
    """The index of the checkpoint `path`. Raises NotFound, Corrupt, NotSupported."""
    where = f"{path}/{INDEX_NAME}"
    try:
        found = fs.stat(where)
    except NotFound:
        raise NotFound(f"{path} is no checkpoint: there is no file {where}") from None
    if found.is_directory:
        raise Corrupt(f"{where} is a directory, and no index of a checkpoint")
    length = found.length
    if length > indexes.MAX_INDEX_BYTES + indexes.HEAD_BYTES:
        raise Corrupt(f"{where} has {length} bytes, more than an index may have ({indexes.MAX_INDEX_BYTES})")
    (content,) = fs.read_batch([(where, 0, length)])
    return indexes.decode(bytes(content), where)


def identity(fs: FileSystem, path: str) -> int | None:
    """Of what has the path: what takes its place has another one. None if there is nothing."""
    try:
        return int(fs.stat(path, follow=False).inode)
    except (NotFound, NotADirectory):
        return None


def publish(fs: FileSystem, filled: str, path: str) -> None:
    """Give a filled directory its path, by one rename. What has the path gives way in the same step."""
    try:
        fs.rename(filled, path, replace=False)
    except AlreadyExists:
        fs.exchange(filled, path)
        fs.remove(filled, recursive=True)


class CheckpointDirectory:
    def __init__(self, fs: FileSystem, root: str, *, random: Random = RANDOM) -> None:
        self._fs = fs
        self.root = root.rstrip("/") or "/"
        self._random = random

    def _at(self, name: str) -> str:
        return f"{self.root.rstrip('/')}/{name}"

    def published(self, kind: str | None = None) -> list[Published]:
        """The checkpoints, oldest first. Raises NotFound if there is no directory."""
        found = []
        for entry in self._fs.list(self.root):
            name = _NAME.fullmatch(entry.name)
            if name is not None and kind in (None, name[1]):
                found.append(Published(int(name[2]), name[1], self._at(entry.name)))
        return sorted(found)

    def newest_valid(self, kind: str | None = None, *, damaged: Collection[str] = ()) -> tuple[Published, Index] | None:
        """The checkpoint of the highest step that is as its index says, by what storage has recorded; None if there is
        none. A damaged one is passed over, and so are the paths `damaged`. If one is removed or replaced while it is
        looked at, by a job that saves, all are looked for again: newer ones are there then."""
        while True:
            try:
                candidates = [each for each in self.published(kind) if each.path not in damaged]
            except NotFound:
                return None
            for each in reversed(candidates):
                before = identity(self._fs, each.path)
                if (index := self._valid_index(each)) is not None:
                    return each, index
                if before is None or identity(self._fs, each.path) != before:
                    break
            else:
                return None

    def _valid_index(self, each: Published) -> Index | None:
        try:
            index = read_index(self._fs, each.path)
            verify(self._fs, each.path, index)
        except DAMAGE:
            return None
        return index

    def begin(self, kind: str, step: int) -> str:
        """Make the directory that a save fills. Returns its path."""
        name = name_of(kind, step)
        path = self._at(f"{_SAVING}{self._random.token(_TOKEN_BYTES).hex()}-{name}")
        self._fs.mkdir(path, parents=True)
        return path

    def publish(self, path: str, kind: str, step: int) -> str:
        """Give what was filled its name. A checkpoint that has it gives way in the same step. Returns the path."""
        final = self._at(name_of(kind, step))
        publish(self._fs, path, final)
        return final

    def remove(self, path: str) -> None:
        """Remove a checkpoint, or what a save has left. Raises NotFound."""
        name = path.rpartition("/")[2]
        if not (name.startswith(_REMOVING) and _LEFT.fullmatch(name)):
            moved = self._at(f"{_REMOVING}{self._random.token(_TOKEN_BYTES).hex()}-{name}")
            self._fs.rename(path, moved, replace=False)
            path = moved
        self._fs.remove(path, recursive=True)

    def make_room(self, kind: str, keep: int | None, *, damaged: Collection[str] = ()) -> None:
        """Remove the checkpoints of a kind that are older than the newest `keep` valid ones (None: no checkpoint; the
        paths `damaged` are none of these); and what saves and removals have left behind that did not end. No other save
        may go on in this directory."""
        valid, doomed = 0, list[str]()
        for each in reversed(self.published(kind) if keep is not None else []):
            assert keep is not None, "else there is nothing to look at"
            if valid >= keep:
                doomed.append(each.path)
            elif each.path not in damaged and self._valid_index(each) is not None:
                valid += 1
        names = [entry.name for entry in self._fs.list(self.root)]
        doomed += [self._at(name) for name in names if _LEFT.fullmatch(name)]
        for path in doomed:
            with suppress(NotFound):  # `threefs ckpt rm`, or a job that ends, removes it too
                self.remove(path)
