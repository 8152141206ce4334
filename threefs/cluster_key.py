"""The key of a cluster: a secret text in a file, which all its programs share and prove to each other that they know.

A file that others may read is no secret, so it is refused, as ssh does. One that a group may read is fine: that is how
an administrator lets users in.
"""

import errno
import ipaddress
import os
import stat
from pathlib import Path

from threefs.errors import AlreadyExists, InvalidArgument, InvalidSettings

#: A server proves to anybody who asks that it knows the key, so a stranger can try guesses offline.
MIN_CHARS = 16
_BYTES = 32
_MAX_BYTES = 4096
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)


def read(path: Path) -> str:
    """The key in a file. Raises InvalidSettings, which names the file and what is wrong with it."""
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise InvalidSettings(f"the key file {path} cannot be read: {error.strerror}") from None
    if found.st_mode & (stat.S_IRWXO | stat.S_IWGRP):
        raise InvalidSettings(f"the key file {path} is open to others; `chmod 600 {path}` closes it")
    return checked(content.decode("utf-8", "replace").strip(), f"the key file {path}")


def checked(key: str, where: str) -> str:
    """Raises InvalidSettings for a text that is no key."""
    if len(key) < MIN_CHARS or len(key) > _MAX_BYTES or not key.isprintable():
        raise InvalidSettings(
            f"{where} must hold one line of at least {MIN_CHARS} characters; `threefs key FILE` makes a good one"
        )
    return key


def make(path: Path, key: str = "") -> str:
    """Write a new key, or this one, to a file that only this user may read. Raises AlreadyExists.

    It gets its name when it is whole: an empty file, as of a process that was killed, would be in the way for ever.
    """
    key = key or os.urandom(_BYTES).hex()
    if os.path.lexists(path):
        raise _exists(path)
    unfinished = path.with_name(f"{path.name}.{os.urandom(4).hex()}.unfinished")  # another process may make one, too
    fd = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(fd, "w", encoding="utf-8") as file:
            file.write(key + "\n")
            file.flush()
            os.fsync(fd)
        _publish(unfinished, path)
    except FileExistsError:
        raise _exists(path) from None
    finally:
        unfinished.unlink(missing_ok=True)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
    return key


def _publish(unfinished: Path, path: Path) -> None:
    """Unlike a rename, a link replaces no key that was made meanwhile. Not every file system has links (FAT)."""
    try:
        os.link(unfinished, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if os.path.lexists(path):
            raise FileExistsError from None
        unfinished.rename(path)


def _exists(path: Path) -> AlreadyExists:
    return AlreadyExists(f"{path} exists already, and a key is never replaced")


def of_settings(token: str, key_file: str) -> str:
    """The key that the settings `token` and `key_file` of a program name; empty: there is no key."""
    if not key_file:
        return token
    if token:
        raise InvalidSettings("token and key_file both give the key; give one of them")
    return read(Path(key_file))


def check_host(host: str, key: str) -> None:
    """Raises InvalidSettings for a service that others on the network could reach, and that lets everybody in."""
    if not key and not _is_loopback(host):
        raise InvalidSettings(
            f"host {host!r} can be reached from other machines, so the cluster needs a key: `threefs key "
            "/etc/threefs/key` makes one; copy it to all machines and put key_file into the settings of every service"
        )


def check_new(path: Path) -> None:
    """Raises InvalidArgument where `make` could not."""
    if not path.absolute().parent.is_dir():
        raise InvalidArgument(f"the directory of {path} does not exist")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
