"""A checkpoint of one process: save a dictionary of arrays under a path, and load all or some of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from threefs.env.random import RANDOM, Random
from threefs.errors import AlreadyExists, Corrupt, NotADirectory, NotFound, NotSupported
from threefs_checkpoint import loading, single_file
from threefs_checkpoint.filesystem_protocol import FileSystem
from threefs_checkpoint.index import INDEX_NAME, START
from threefs_checkpoint.job_directory import DAMAGE, identity, publish, read_index
from threefs_checkpoint.saving import CHUNK_BYTES, STAGING_BYTES, Saver
from threefs_checkpoint.slices import Slice
from threefs_checkpoint.state import State

_TOKEN_BYTES = 8


@dataclass(frozen=True, slots=True)
class _Path:
    """A path that becomes a checkpoint."""

    fs: FileSystem
    path: str
    random: Random

    def begin(self) -> str:
        _refuse_other_content(self.fs, self.path)
        unfinished = f"{self.path}.unfinished-{self.random.token(_TOKEN_BYTES).hex()}"
        try:
            self.fs.mkdir(unfinished)
        except NotFound:
            directory = self.path.rpartition("/")[0]
            raise NotFound(f"there is no directory {directory} for the checkpoint {self.path}; make it first") from None
        return unfinished

    def publish(self, path: str) -> str:
        publish(self.fs, path, self.path)
        return self.path

    def abandon(self, path: str) -> None:
        self.fs.remove(path, recursive=True)


def _refuse_other_content(fs: FileSystem, path: str) -> None:
    """A checkpoint takes the place of another one, but not of a data set whose path was given by mistake."""
    if not _may_be_replaced(fs, path):
        raise AlreadyExists(f"{path} is there and is no checkpoint; remove it, or choose another path")


def _may_be_replaced(fs: FileSystem, path: str) -> bool:
    try:
        read_index(fs, path)
    except NotFound:
        return _is_empty(fs, path)
    except NotADirectory:
        return _is_single_file(fs, path)
    except Corrupt:
        return _begins_as_index(fs, f"{path}/{INDEX_NAME}")  # a damaged checkpoint is one too
    except NotSupported:
        return True
    return True


def _begins_as_index(fs: FileSystem, path: str) -> bool:
    """Other programs have files and directories of that name, too."""
    if fs.stat(path).is_directory:
        return False
    (start,) = fs.read_batch([(path, 0, len(START))])
    return bytes(start) == START


def _is_empty(fs: FileSystem, path: str) -> bool:
    try:
        return next(iter(fs.list(path)), None) is None
    except NotFound:
        return True


def _is_single_file(fs: FileSystem, path: str) -> bool:
    try:
        single_file.read_index(fs, path)
    except NotSupported:
        return True
    except Corrupt:
        return False
    return True


def save(
    fs: FileSystem,
    path: str,
    tensors: State,
    *,
    metadata: Any = None,
    chunk_bytes: int = CHUNK_BYTES,
    staging_bytes: int = STAGING_BYTES,
    random: Random = RANDOM,
) -> None:
    """Write `tensors` to the directory `path`, which appears whole and verified or, if this fails, not at all. An older
    checkpoint there is replaced in the same step; other content is refused.

    `metadata` are plain JSON values of yours. Raises InvalidArgument for what is not plain numbers, SaveFailedError.
    """
    saver = Saver(fs, staging_bytes=staging_bytes, chunk_bytes=chunk_bytes)
    try:
        saver.save(0, tensors, _Path(fs, path.rstrip("/"), random), metadata=metadata)
        saver.wait()
    except BaseException:  # after Ctrl-C nothing appears
        saver.break_off()
        raise
    finally:
        saver.close()


def load(
    fs: FileSystem, path: str, names: Sequence[str] | Mapping[str, Slice] | None = None
) -> dict[str, NDArray[Any]]:
    """All tensors, or those of these names, or slices of them; each is verified. Raises NotFound, Corrupt,
    NotSupported.

    bfloat16 and 8-bit floats come as unsigned integers of their size; the index has the names of their types. Also
    reads the files that older versions have written. If another checkpoint takes the path meanwhile, that is loaded.
    """
    while True:
        before = identity(fs, path)
        try:
            return _load(fs, path, names)
        except DAMAGE:
            if before is None or identity(fs, path) in (before, None):
                raise


def _load(fs: FileSystem, path: str, names: Sequence[str] | Mapping[str, Slice] | None) -> dict[str, NDArray[Any]]:
    try:
        index = read_index(fs, path)
    except (NotADirectory, NotFound):
        if fs.stat(path).is_directory:
            raise
        return single_file.load(fs, path, None if names is None else list(names))
    return loading.load(fs, path, index, loading.wanted_of(index, names))
