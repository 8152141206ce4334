"""A local directory with the methods of the client that checkpoints need."""

import builtins
import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.harness.local_files import DEFAULT_CHUNK_BYTES, LocalFile, LocalFiles
from threefs.checksums import Buffer, crc32c
from threefs.errors import AlreadyExists, NotADirectory, NotFound, TooManySymlinks

chunk_sizes: dict[int, int] = {}  # of files that were made here, by inode


class CheckpointFiles(LocalFiles):
    def open(self, path: str, mode: str = "rb", *, chunk_bytes: int = 0) -> LocalFile:
        try:
            opened: Any = self._at(path).open(mode)
        except FileNotFoundError:
            raise NotFound(path) from None
        except FileExistsError:
            raise AlreadyExists(path) from None
        if "w" in mode or "x" in mode:
            chunk_sizes[os.fstat(opened.fileno()).st_ino] = chunk_bytes or DEFAULT_CHUNK_BYTES
        return LocalFile(self._at(path), opened)

    def write_file(self, path: str, data: Buffer, *, exclusive: bool = False) -> None:
        with self.open(path, "xb" if exclusive else "wb") as file:
            file.write(data)

    def create_unnamed(self, directory: str, *, permissions: int = 0o600, chunk_bytes: int = 0) -> LocalFile:
        if not self._at(directory).is_dir():
            raise NotFound(directory)
        descriptor, name = tempfile.mkstemp(dir=Path(self.root).parent, prefix="unnamed-")
        return LocalFile(Path(name), os.fdopen(descriptor, "w+b"))

    def link_file(self, file: LocalFile, destination: str) -> None:
        file.flush()
        try:
            self._at(destination).hardlink_to(file.path)
        except FileExistsError:
            raise AlreadyExists(destination) from None

    def chunk_checksums(self, files: Sequence[str]) -> builtins.list[builtins.list[tuple[int, int, int]]]:
        found = []
        for path in files:
            content, chunk_bytes = self._at(path).read_bytes(), self._chunk_bytes(path)
            parts = [content[at : at + chunk_bytes] for at in range(0, len(content), chunk_bytes)]
            found.append([(number, len(part), crc32c(part)) for number, part in enumerate(parts)])
        return found

    def list(self, path: str) -> Iterator[SimpleNamespace]:
        try:
            return iter([SimpleNamespace(name=name) for name in self.listing(path)])
        except FileNotFoundError:
            raise NotFound(path) from None

    def mkdir(self, path: str, *, parents: bool = False) -> None:
        self._at(path).mkdir(parents=parents, exist_ok=parents)

    def stat(self, path: str, *, follow: bool = True) -> SimpleNamespace:
        try:
            found = self._at(path).stat(follow_symlinks=follow)
        except FileNotFoundError:
            raise NotFound(path) from None
        except NotADirectoryError:
            raise NotADirectory(path) from None
        except OSError as error:
            assert error.errno == errno.ELOOP
            raise TooManySymlinks(path) from None
        layout = SimpleNamespace(chunk_bytes=chunk_sizes.get(found.st_ino, DEFAULT_CHUNK_BYTES))
        is_directory = stat.S_ISDIR(found.st_mode)
        return SimpleNamespace(length=found.st_size, inode=found.st_ino, layout=layout, is_directory=is_directory)

    def _chunk_bytes(self, path: str) -> int:
        return int(self.stat(path).layout.chunk_bytes)

    def rename(self, source: str, destination: str, *, replace: bool = True) -> None:
        if not replace and self._at(destination).exists():
            raise AlreadyExists(destination)
        if not self._at(source).exists():
            raise NotFound(source)
        self._at(source).rename(self._at(destination))

    def exchange(self, path: str, other: str) -> None:
        if not (self._at(path).exists() and self._at(other).exists()):
            raise NotFound(path)
        aside = self._at(other + ".exchanged")
        self._at(other).rename(aside)
        self._at(path).rename(self._at(other))
        aside.rename(self._at(path))

    def remove(self, path: str, *, recursive: bool = False) -> None:
        if not self._at(path).exists():
            raise NotFound(path)
        if not recursive or self._at(path).is_file():
            self._at(path).unlink()
        else:
            shutil.rmtree(self._at(path))

    def listing(self, path: str = "/") -> builtins.list[str]:
        return sorted(entry.name for entry in self._at(path).iterdir())
