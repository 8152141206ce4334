"""A file system object with the methods of the client, over a local directory."""

import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
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

    @property
    def name(self) -> str:
        return str(self.path)

    @property
    def length(self) -> int:
        return os.fstat(self.file.fileno()).st_size

    @property
    def inode(self) -> int:
        return os.fstat(self.file.fileno()).st_ino

    def read(self, size: int = -1, /) -> bytes:
        return self.file.read(size)

    def write(self, data: Buffer, /) -> int:
        return self.file.write(data)

    def readable(self) -> bool:
        return self.file.readable()

    def writable(self) -> bool:
        return self.file.writable()

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview, /) -> int:
        content = self.file.read(len(buffer))
        buffer[: len(content)] = content
        return len(content)

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        return self.file.seek(offset, whence)

    def tell(self) -> int:
        return self.file.tell()

    @property
    def closed(self) -> bool:
        return self.file.closed

    def close(self) -> None:
        self.file.close()

    def flush(self) -> None:
        self.file.flush()

    def __enter__(self) -> "LocalFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _attributes(path: Path) -> SimpleNamespace:
    found = path.stat()
    return SimpleNamespace(
        length=found.st_size, mtime_ns=found.st_mtime_ns, is_directory=path.is_dir(), is_file=path.is_file()
    )


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

    def read_batch(self, rows: Sequence[tuple[Any, int, int]], into: Any = None) -> list[memoryview]:
        if into is not None and not isinstance(into, list | tuple):
            ends = list(accumulate(length for _, _, length in rows))
            into = [into[end - row[2] : end] for row, end in zip(rows, ends, strict=True)]
        views = []
        for number, (file, offset, length) in enumerate(rows):
            if isinstance(file, LocalFile):
                content = memoryview(os.pread(file.file.fileno(), length, offset))
            else:
                with self._at(file).open("rb") as opened:
                    content = memoryview(os.pread(opened.fileno(), length, offset))
            if into is not None:
                into[number][: len(content)] = content
                content = into[number][: len(content)]
            views.append(content)
        return views

    def write_batch(self, rows: Sequence[tuple[LocalFile, int, Buffer]]) -> None:
        for file, offset, data in rows:
            file.file.seek(offset)
            file.file.write(data)

    def mkdir(self, path: str, *, parents: bool = False) -> None:
        self._at(path).mkdir(parents=parents, exist_ok=parents)

    def stat(self, path: str) -> SimpleNamespace:
        if not self._at(path).exists():
            raise NotFound(path)
        layout = SimpleNamespace(chunk_bytes=chunk_sizes.get(path, DEFAULT_CHUNK_BYTES))
        return SimpleNamespace(layout=layout, **vars(_attributes(self._at(path))))

    def walk(self, top: str) -> Iterator[tuple[str, list[SimpleNamespace], list[SimpleNamespace]]]:
        for directory, directories, files in os.walk(self._at(top)):
            below = [SimpleNamespace(name=name) for name in directories]
            entries = [SimpleNamespace(name=name, attributes=_attributes(Path(directory, name))) for name in files]
            yield "/" + os.path.relpath(directory, self.root), below, entries
            directories[:] = [entry.name for entry in below]

    def stat_many(self, names: Sequence[str]) -> list[SimpleNamespace | None]:
        return [self._stat(name) if self._at(name).exists() else None for name in names]

    def _stat(self, path: str) -> SimpleNamespace:
        return SimpleNamespace(
            length=self._at(path).stat().st_size,
            layout=SimpleNamespace(chunk_bytes=chunk_sizes.get(path, DEFAULT_CHUNK_BYTES)),
        )

    def rename(self, source: str, destination: str, *, replace: bool = True) -> None:
        if not replace and self._at(destination).exists():
            raise AlreadyExists(destination)
        self._at(source).replace(self._at(destination))

    def remove(self, path: str, *, recursive: bool = False) -> None:
        if recursive:
            shutil.rmtree(self._at(path))
        else:
            self._at(path).unlink()

    def listing(self, path: str = "/") -> list[str]:
        return sorted(entry.name for entry in self._at(path).iterdir())
