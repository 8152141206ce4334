"""Trees on the local disk: what `put` copies."""

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field

from threefs.errors import IsADirectory, NotSupported

_PERMISSIONS = 0o777  # set-user-id and the like stay behind


def permissions(found: os.stat_result) -> int:
    """Those that a copy has."""
    return found.st_mode & _PERMISSIONS


@dataclass(frozen=True, slots=True)
class LocalFile:
    source: str
    destination: str
    length_bytes: int
    mode: int
    top: str  # the beginning of `source` that the user has named


@dataclass(frozen=True, slots=True)
class LocalTree:
    """Everything below some paths, with where it goes."""

    levels: list[list[str]] = field(default_factory=list)  # directories to make, those above first
    modes: dict[str, int] = field(default_factory=dict)  # of directories that are copied, by where they go
    files: list[LocalFile] = field(default_factory=list)
    symlinks: list[tuple[str, str]] = field(default_factory=list)  # (what is in it, where it goes)
    skipped: list[str] = field(default_factory=list)  # sockets, pipes, devices

    @property
    def directories(self) -> int:
        return sum(len(level) for level in self.levels)

    @property
    def length_bytes(self) -> int:
        return sum(file.length_bytes for file in self.files)

    def add(self, source: str, destination: str, *, recursive: bool) -> None:
        """Raises OSError, IsADirectory without `recursive`, NotSupported for a source that is no file at all."""
        named, found = source, os.stat(source)
        source = os.path.realpath(source)  # the user may name it through links
        if stat.S_ISREG(found.st_mode):
            self._add_file(source, destination, found, source)
        elif not stat.S_ISDIR(found.st_mode):
            raise NotSupported(f"{named} is neither a file nor a directory")
        elif not recursive:
            raise IsADirectory(f"{named} is a directory; -r copies it with its content")
        else:
            self._add_directory(source, destination)

    def add_files(self, top: str, destination: str, names: Iterable[str]) -> None:
        """Only the files of these names below `top`, with the directories that they need. Raises OSError."""
        top = os.path.realpath(top)
        made = {destination}
        self._level(0).append(destination)
        for name in names:
            parts = name.split("/")
            for depth in range(1, len(parts)):
                directory = "/".join((destination, *parts[:depth]))
                if directory not in made:
                    made.add(directory)
                    self._level(depth).append(directory)
            source = os.path.join(top, name)
            self._add_file(source, f"{destination}/{name}", os.stat(source), top)

    def _level(self, depth: int) -> list[str]:
        while depth >= len(self.levels):
            self.levels.append([])
        return self.levels[depth]

    def _add_file(self, source: str, destination: str, found: os.stat_result, top: str) -> None:
        self.files.append(LocalFile(source, destination, found.st_size, permissions(found), top))

    def _add_directory(self, top: str, destination: str) -> None:
        waiting = [(top, destination, 0)]
        while waiting:
            source, destination, depth = waiting.pop()
            self._level(depth).append(destination)
            self.modes[destination] = permissions(os.stat(source))
            waiting += self._scan(source, destination, depth, top)

    def _scan(self, source: str, destination: str, depth: int, top: str) -> list[tuple[str, str, int]]:
        """The directories in it."""
        directories = []
        with os.scandir(source) as entries:
            for entry in entries:
                below = f"{destination.rstrip('/')}/{entry.name}"
                if entry.is_symlink():
                    self.symlinks.append((os.readlink(entry.path), below))
                elif entry.is_dir(follow_symlinks=False):
                    directories.append((entry.path, below, depth + 1))
                elif entry.is_file(follow_symlinks=False):
                    self._add_file(entry.path, below, entry.stat(follow_symlinks=False), top)
                else:
                    self.skipped.append(entry.path)
        return directories
