"""A file system object with the methods of the client, over a local directory."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO

from threefs.checksums import Buffer
from threefs.errors import AlreadyExists, NotFound

DEFAULT_CHUNK_BYTES = 1 << 20

chunk_sizes: dict[str, int] = {}  # of files that were made here, by path


class LocalFile:
    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path = path
        self.file = file

    def read(self, size: int = -1, /) -> bytes:
        return self.file.read(size)

    def write(self, data: Buffer, /) -> int:
        return self.file.write(data)

    def close(self) -> None:
        self.file.close()

    def __enter__(self) -> "LocalFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass
class LocalFiles:
    """Can be pickled, as the real one can."""

    root: str

    def _at(self, path: str) -> Path:
        return Path(self.root) / path.lstrip("/")

    def open(self, path: str, mode: str = "rb", *, chunk_bytes: int = 0) -> LocalFile:
        if "w" in mode:
            chunk_sizes[path] = chunk_bytes or DEFAULT_CHUNK_BYTES
        try:
            return LocalFile(self._at(path), self._at(path).open(mode))  # type: ignore[arg-type]
        except FileNotFoundError:
            raise NotFound(path) from None

    def read_batch(
        self, rows: Sequence[tuple[Any, int, int]], into: Sequence[memoryview] | None = None
    ) -> list[memoryview]:
        views = []
        for number, (file, offset, length) in enumerate(rows):
            path = file.path if isinstance(file, LocalFile) else self._at(file)
            with path.open("rb") as opened:
                opened.seek(offset)
                content = memoryview(opened.read(length))
            if into is not None:
                into[number][: len(content)] = content
                content = into[number][: len(content)]
            views.append(content)
        return views

    def write_batch(self, rows: Sequence[tuple[LocalFile, int, Buffer]]) -> None:
        for file, offset, data in rows:
            file.file.seek(offset)
            file.file.write(data)

    def mkdir(self, path: str) -> None:
        self._at(path).mkdir()

    def stat(self, path: str) -> SimpleNamespace:
        return SimpleNamespace(layout=SimpleNamespace(chunk_bytes=chunk_sizes[path]))

    def stat_many(self, names: Sequence[str]) -> list[SimpleNamespace | None]:
        places = [self._at(name) for name in names]
        return [SimpleNamespace(length=place.stat().st_size) if place.exists() else None for place in places]

    def rename(self, source: str, destination: str, *, replace: bool = True) -> None:
        if not replace and self._at(destination).exists():
            raise AlreadyExists(destination)
        self._at(source).replace(self._at(destination))

    def remove(self, path: str, *, recursive: bool = False) -> None:
        if recursive:
            for inside in self._at(path).iterdir():
                inside.unlink()
            self._at(path).rmdir()
        else:
            self._at(path).unlink()

    def listing(self, path: str = "/") -> list[str]:
        return sorted(entry.name for entry in self._at(path).iterdir())
