"""The files of a dataset in another format: in a directory of this machine, or of the cluster (`threefs:///path`)."""

import io
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO, cast

from threefs.env.random import RANDOM
from threefs.errors import AlreadyExists, Corrupt, NotFound
from threefs_data.filesystem_protocol import TreeFileSystem
from threefs_data.prepare.sources import REMOTE, remote_path

_BUFFER_BYTES = 4 << 20


class Directory:
    """Opens its files by name."""

    def __init__(self, fs: TreeFileSystem, path: str) -> None:
        self._fs = fs
        self._path = path.rstrip("/")

    def place(self, name: str) -> str:
        """For errors, and for files inside."""
        return f"{self._path}/{name}"

    def open(self, name: str) -> BinaryIO:
        """For reading. Raises NotFound; Corrupt for a name that leads out of the directory."""
        if name.startswith("/") or not {"", ".", ".."}.isdisjoint(name.split("/")):
            raise Corrupt(f"{self._path}: the name {name!r} leads elsewhere")
        if "\0" in name or any("\ud800" <= letter <= "\udfff" for letter in name):
            raise Corrupt(f"{self._path}: {name!r} is no name of a file")
        return self._open(name, "rb")

    def create(self, name: str) -> BinaryIO:
        """For writing."""
        return self._open(name, "wb")

    def names(self) -> list[str]:
        """Of the files directly inside, in order."""
        if self._path.startswith(REMOTE):
            for _, _, entries in self._fs.walk(remote_path(self._path)):
                return sorted(entry.name for entry in entries)
            return []
        try:
            return sorted(entry.name for entry in os.scandir(self._path) if entry.is_file())
        except FileNotFoundError:
            raise NotFound(f"there is no directory {self._path} on this machine") from None

    def _open(self, name: str, mode: str) -> BinaryIO:
        if not self._path.startswith(REMOTE):
            try:
                return cast(BinaryIO, open(self.place(name), mode, buffering=_BUFFER_BYTES))
            except FileNotFoundError:
                raise NotFound(f"there is no file {self.place(name)} on this machine") from None
        file = self._fs.open(remote_path(self.place(name)), mode)
        buffered = io.BufferedReader if mode == "rb" else io.BufferedWriter
        return cast(BinaryIO, buffered(file, _BUFFER_BYTES))


@contextmanager
def new_directory(fs: TreeFileSystem, path: str) -> Iterator[Directory]:
    """A directory that appears under its path when the block ends well. Raises AlreadyExists."""
    path = path.rstrip("/")
    temporary = f"{path}.unfinished-{RANDOM.token(8).hex()}"
    is_remote = path.startswith(REMOTE)
    if fs.stat_many([remote_path(path)])[0] is not None if is_remote else os.path.lexists(path):
        raise AlreadyExists(f"{path} is there already; remove it, or choose another name")
    if is_remote:
        fs.mkdir(remote_path(temporary), parents=True)
    else:
        os.makedirs(temporary)
    try:
        yield Directory(fs, temporary)
        if is_remote:
            fs.rename(remote_path(temporary), remote_path(path), replace=False)
        else:
            os.rename(temporary, path)
    except BaseException:
        with suppress(OSError):  # the first error is the one to raise
            if is_remote:
                fs.remove(remote_path(temporary), recursive=True)
            else:
                shutil.rmtree(temporary)
        raise
