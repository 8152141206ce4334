"""The part of a file system that a dataset needs. `threefs_client.FileSystem` has it."""

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Protocol, Self

from threefs.checksums import Buffer


class File(Protocol):
    @property
    def inode(self) -> int:
        """Another file that takes its name has another one."""
        ...

    def read(self, size: int = -1, /) -> bytes: ...

    def write(self, data: Buffer, /) -> int: ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class FileSystem(Protocol):
    def open(self, path: str, mode: str = "rb") -> Any: ...

    def read_batch(self, rows: Sequence[tuple[Any, int, int]], into: Any = None) -> Sequence[memoryview]:
        """A view per row. `into` is one buffer, filled row after row as if each had its full length."""
        ...

    def stat_many(self, names: Sequence[str]) -> Sequence[Any]:
        """None for what does not exist; of the others, `length` and `layout.chunk_bytes` are asked for."""
        ...

    def mkdir(self, path: str) -> Any: ...

    def rename(self, source: str, destination: str, *, replace: bool = True) -> Any: ...

    def remove(self, path: str, *, recursive: bool = False) -> None: ...


class TreeFileSystem(FileSystem, Protocol):
    """The methods that preparing a dataset needs besides: input files are found in directories."""

    def mkdir(self, path: str, *, parents: bool = False) -> Any: ...

    def stat(self, path: str) -> Any:
        """Of the result, `length`, `mtime_ns` and `is_directory` are asked for."""
        ...

    def walk(self, top: str) -> Any:
        """(path, entries of directories, other entries) from the top down; entries have `name` and `attributes`."""
        ...
