"""What a checkpoint needs of a file system. `threefs_client.FileSystem` has it."""

from collections.abc import Sequence
from typing import Any, Protocol

from threefs.checksums import Buffer


class FileSystem(Protocol):
    def open(self, path: str, mode: str = "rb", *, chunk_bytes: int = 0) -> Any: ...

    def stat(self, path: str) -> Any:
        """Its `layout.chunk_bytes` is asked for."""
        ...

    def read_batch(
        self, rows: Sequence[tuple[Any, int, int]], into: Sequence[memoryview] | None = None
    ) -> Sequence[memoryview]: ...

    def write_batch(self, rows: Sequence[tuple[Any, int, Buffer]]) -> Any: ...

    def rename(self, source: str, destination: str) -> Any: ...

    def remove(self, path: str) -> None: ...
