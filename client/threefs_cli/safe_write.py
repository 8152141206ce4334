"""Writes files of the cluster to the local disk, safe against names and links that other users chose.

A symbolic link that one `get` has made must not lead the next one out of its destination, and a file with set-user-id
bits must not become a program of the user who copies it. So everything below the directory that the user has named is
opened from that directory's descriptor, name by name, and no symbolic link is followed. A file is written under a
temporary name and renamed when it is whole, so the old file stays until then, even if this process is killed.
Permissions are those of the file, without set-user-id bits and less the umask.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from threefs.env.random import RANDOM, Random
from threefs.errors import NotADirectory
from threefs_cli.error_names import with_filename

_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PERMISSIONS = 0o777
OWNER_ACCESS = 0o700  # without it, the owner of a directory cannot fill it


class SafeWriter:
    """Writes below one directory, `base`, which the user has named; the path to `base` may contain links.

    With `special_files`, a device or pipe (also behind a link, such as /dev/stdout) is written to instead of replaced.
    That is only right for a path that the user has named in full.
    """

    def __init__(self, base: str, *, special_files: bool = False, random: Random = RANDOM) -> None:
        self._base = base
        self._special_files = special_files
        self._random = random

    def make_directory(self, path: str, mode: int) -> bool:
        """Make a directory, or accept an existing one as it is; whether one was made. Raises OSError, NotADirectory.

        Its owner may use a new one in any case; `finish_directory` takes that away if `mode` does not permit it.
        """
        with self._open_parent(path) as (parent, name), with_filename(path, instead=True):
            made = True
            try:
                os.mkdir(name, mode & _PERMISSIONS | OWNER_ACCESS, dir_fd=parent)
            except FileExistsError:
                made = False
            os.close(self._open_subdirectory(name, parent, path))
        return made

    def finish_directory(self, path: str, mode: int) -> None:
        """Take from the owner of a directory that was made what `mode` does not permit. Raises OSError."""
        with self._open_parent(path) as (parent, name), with_filename(path, instead=True):
            directory = self._open_subdirectory(name, parent, path)
            try:
                os.fchmod(directory, os.fstat(directory).st_mode & (mode | ~OWNER_ACCESS))
            finally:
                os.close(directory)

    def make_symlink(self, target: str, path: str) -> None:
        """Make a symbolic link; it replaces an existing file or link. Raises OSError."""
        with self._open_parent(path) as (parent, name), with_filename(path, instead=True):
            temporary = self._temporary_name()
            os.symlink(target, temporary, dir_fd=parent)
            self._replace(temporary, name, parent)

    @contextmanager
    def new_file(self, path: str, mode: int) -> Iterator[int]:
        """The descriptor of a new file, which replaces an existing file or link if the block succeeds.

        Raises OSError.
        """
        with self._open_parent(path) as (parent, name), with_filename(path, instead=True):
            special = _open_special(name, parent) if self._special_files else None
            if special is not None:
                with open(special, "wb", buffering=0):
                    yield special
                return
            temporary = self._temporary_name()
            file = os.open(temporary, _CREATE_FLAGS, mode & _PERMISSIONS, dir_fd=parent)
            try:
                with open(file, "wb", buffering=0):
                    yield file
                    if _exists(name, parent):
                        os.fsync(file)  # or a power cut could leave neither the old content nor the new one
                self._replace(temporary, name, parent)
            except BaseException:
                with suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=parent)
                raise

    def _replace(self, temporary: str, name: str, parent: int) -> None:
        try:
            os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
        except OSError:
            with suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=parent)
            raise

    def _temporary_name(self) -> str:
        return f".get-{self._random.token(8).hex()}"

    @contextmanager
    def _open_parent(self, path: str) -> Iterator[tuple[int, str]]:
        """(descriptor of the parent directory of a path, last name of the path)."""
        *parts, name = self._components(path)
        directory = os.open(self._base or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for part in parts:
                with with_filename(path, instead=True):
                    below = self._open_subdirectory(part, directory, path)
                os.close(directory)
                directory = below
            yield directory, name
        finally:
            os.close(directory)

    def _components(self, path: str) -> list[str]:
        prefix = self._base if not self._base or self._base.endswith("/") else self._base + "/"
        assert path.startswith(prefix), f"{path} is not below {self._base}"
        return [part for part in path[len(prefix) :].split("/") if part]

    def _open_subdirectory(self, name: str, parent: int, path: str) -> int:
        try:
            return os.open(name, _DIRECTORY_FLAGS, dir_fd=parent)
        except NotADirectoryError:
            found = os.stat(name, dir_fd=parent, follow_symlinks=False)
            what = "a symbolic link, and nothing is written through it" if stat.S_ISLNK(found.st_mode) else "a file"
            raise NotADirectory(f"{path} cannot be written: {name} is {what}; remove it first") from None


def _exists(name: str, parent: int) -> bool:
    try:
        os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _open_special(name: str, parent: int) -> int | None:
    try:
        if stat.S_IFMT(os.stat(name, dir_fd=parent).st_mode) in (stat.S_IFREG, stat.S_IFDIR):
            return None
    except OSError:  # nothing there, or a link to nowhere
        return None
    return os.open(name, os.O_WRONLY | os.O_CLOEXEC, dir_fd=parent)
