"""Trees in the cluster: what `get` copies."""

import os
from dataclasses import dataclass, field

from threefs_client import AsyncFileSystem, Attributes

from threefs.errors import Corrupt, IsADirectory, NotSupported


@dataclass(frozen=True, slots=True)
class RemoteFile:
    source: str
    destination: str
    inode: int
    length_bytes: int
    mode: int


@dataclass(frozen=True, slots=True)
class RemoteTree:
    """Everything below some paths, with where it goes on the local disk."""

    directories: list[str] = field(default_factory=list)  # those above first
    modes: dict[str, int] = field(default_factory=dict)  # of the directories, by where they go
    files: list[RemoteFile] = field(default_factory=list)
    symlinks: list[tuple[str, str]] = field(default_factory=list)  # (what is in it, where it goes)
    skipped: list[str] = field(default_factory=list)  # sockets, pipes, devices
    bases: set[str] = field(default_factory=set)  # the directory that all of it goes into

    @property
    def base(self) -> str:
        """Empty: the current directory."""
        (base,) = self.bases
        return base

    @property
    def length_bytes(self) -> int:
        return sum(file.length_bytes for file in self.files)

    async def add(self, fs: AsyncFileSystem, source: str, destination: str, *, recursive: bool) -> None:
        """Raises NotFound, IsADirectory without `recursive`, NotSupported for a source that is no file at all."""
        self.bases.add(os.path.dirname(destination.rstrip("/") or "/"))
        found = await fs.stat(source)
        if found.is_directory:
            destination = destination.rstrip("/") or "/"
        elif not found.is_file:
            raise NotSupported(f"{source} is neither a file nor a directory")
        else:
            self._add_entry(source, destination, found)
            return
        if not recursive:
            raise IsADirectory(f"{source} is a directory; -r copies it with its content")
        waiting = [(source.rstrip("/") or "/", destination, found.mode)]
        while waiting:
            source, destination, mode = waiting.pop()
            self.directories.append(destination)
            self.modes[destination] = mode
            async for entry in fs.list(source, with_attributes=True):
                assert entry.attributes is not None, "they were asked for"
                below = (f"{source.rstrip('/')}/{entry.name}", f"{destination}/{safe_name(entry.name)}")
                if entry.is_directory:
                    waiting.append((*below, entry.attributes.mode))
                else:
                    self._add_entry(*below, entry.attributes)

    def _add_entry(self, source: str, destination: str, found: Attributes) -> None:
        if found.is_symlink:
            self.symlinks.append((found.target, destination))
        elif not found.is_file:
            self.skipped.append(source)
        else:
            self.files.append(RemoteFile(source, destination, found.inode, found.length, found.mode))


def safe_name(name: str) -> str:
    """A name that a listing gave us, if it is one: never a way out of the destination."""
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise Corrupt(f"{name!r} is not a name of a file")
    return name
