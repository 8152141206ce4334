"""Where files of the cluster land on the local disk.

What comes out of a cluster was named by others: a symbolic link that one `get` has made must not lead the next one out
of its destination, and a file that came with set-user-id bits must not become a program of the user who fetched it. So
everything below the directory that the user has named is reached from that directory's descriptor, name by name, and no
symbolic link is followed. A file is written under another name and takes its own when it is whole, so the old one stays
until then, whenever this process ends. Permissions are those of the file, less what the umask takes away.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from threefs.env.random import RANDOM, Random
from threefs.errors import NotADirectory
from threefs_cli.error_names import naming

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FRESH = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PERMISSIONS = 0o777


class Landing:
    """Below one directory, `base`, which the user has named and which may be reached through links.

    With `specials` a device or a pipe, also behind a link as /dev/stdout is one, is written to instead of being
    replaced: only for what the user has named in full.
    """

    def __init__(self, base: str, *, specials: bool = False, random: Random = RANDOM) -> None:
        self._base = base
        self._specials = specials
        self._random = random

    def make_directory(self, path: str) -> None:
        """One that is there already is fine. Raises OSError, NotADirectory."""
        with self._above(path) as (above, name):
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=above)
            os.close(self._enter(name, above, path))

    def make_symlink(self, target: str, path: str) -> None:
        """In the place of whatever file or link is there. Raises OSError."""
        with self._above(path) as (above, name):
            fresh = self._fresh_name()
            os.symlink(target, fresh, dir_fd=above)
            self._take_place(fresh, name, above)

    @contextmanager
    def new_file(self, path: str, mode: int) -> Iterator[int]:
        """The descriptor of a file that takes the place of whatever file or link is there, if all goes well. Raises
        OSError."""
        with self._above(path) as (above, name), naming(path):
            special = _open_special(name, above) if self._specials else None
            if special is not None:
                with open(special, "wb", buffering=0):
                    yield special
                return
            fresh = self._fresh_name()
            file = os.open(fresh, _FRESH, mode & _PERMISSIONS, dir_fd=above)
            try:
                with open(file, "wb", buffering=0):
                    yield file
                    if _exists(name, above):
                        os.fsync(file)  # or a power cut could leave neither the old content nor the new one
                self._take_place(fresh, name, above)
            except BaseException:
                with suppress(FileNotFoundError):
                    os.unlink(fresh, dir_fd=above)
                raise

    def _take_place(self, fresh: str, name: str, above: int) -> None:
        try:
            os.rename(fresh, name, src_dir_fd=above, dst_dir_fd=above)
        except OSError as error:
            with suppress(FileNotFoundError):
                os.unlink(fresh, dir_fd=above)
            raise OSError(error.errno, error.strerror, name) from None

    def _fresh_name(self) -> str:
        return f".get-{self._random.token(8).hex()}"

    @contextmanager
    def _above(self, path: str) -> Iterator[tuple[int, str]]:
        """(descriptor of the directory that a path lies in, its last name)."""
        *parts, name = self._below(path)
        at = os.open(self._base or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for part in parts:
                below = self._enter(part, at, path)
                os.close(at)
                at = below
            yield at, name
        finally:
            os.close(at)

    def _below(self, path: str) -> list[str]:
        prefix = self._base if not self._base or self._base.endswith("/") else self._base + "/"
        assert path.startswith(prefix), f"{path} is not below {self._base}"
        return [part for part in path[len(prefix) :].split("/") if part]

    def _enter(self, name: str, above: int, path: str) -> int:
        try:
            return os.open(name, _DIRECTORY, dir_fd=above)
        except NotADirectoryError:
            found = os.stat(name, dir_fd=above, follow_symlinks=False)
            what = "a symbolic link, and nothing is written through it" if stat.S_ISLNK(found.st_mode) else "a file"
            raise NotADirectory(f"{path} cannot be written: {name} is {what}; remove it first") from None


def _exists(name: str, above: int) -> bool:
    try:
        os.stat(name, dir_fd=above, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _open_special(name: str, above: int) -> int | None:
    try:
        if stat.S_IFMT(os.stat(name, dir_fd=above).st_mode) in (stat.S_IFREG, stat.S_IFDIR):
            return None
    except OSError:  # nothing there, or a link to nowhere
        return None
    return os.open(name, os.O_WRONLY | os.O_CLOEXEC, dir_fd=above)
