"""What a dataset needs of a file system. `threefs_client.FileSystem` has it."""

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Protocol, Self

from threefs.checksums import Buffer


class File(Protocol):
    def read(self, size: int = -1, /) -> bytes: ...

    def write(self, data: Buffer, /) -> int: ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class FileSystem(Protocol):
    def open(self, path: str, mode: str = "rb") -> Any: ...

    def read_batch(self, rows: Sequence[tuple[Any, int, int]]) -> Sequence[memoryview]: ...

    def stat_many(self, names: Sequence[str]) -> Sequence[Any]:
        """None for what does not exist; of the others, `length` is asked for."""
        ...

    def mkdir(self, path: str) -> Any: ...

    def rename(self, source: str, destination: str, *, replace: bool = True) -> Any: ...

    def remove(self, path: str, *, recursive: bool = False) -> None: ...
