"""Paths as the meta service takes them. Refused here is only what could not be said on the wire."""

import os
import re
from typing import Any

from threefs.errors import InvalidArgument, NotFound, ThreefsError, error_of
from threefs.wire import meta_pb2 as pb

Path = str | bytes | os.PathLike[str] | os.PathLike[bytes]


def encode(path: Path) -> bytes:
    """UTF-8, or any bytes. Raises InvalidArgument for what is no Unicode, and for NUL."""
    plain = path if type(path) is str else _plain(path)
    try:
        # A name that is not UTF-8 comes out of `decode` with surrogates, and must find its way back.
        encoded = plain.encode("utf-8", "surrogateescape") if isinstance(plain, str) else plain
    except UnicodeEncodeError:
        raise InvalidArgument(f"path {plain!r} is not valid Unicode") from None
    if b"\0" in encoded:
        raise InvalidArgument(f"path {plain!r} contains a NUL character")
    return encoded


def _plain(path: Path) -> str | bytes:
    try:
        return os.fspath(path)
    except TypeError:
        raise InvalidArgument(f"a path is a string, bytes or PathLike, not {type(path).__name__}") from None


def decode(name: bytes) -> str:
    """A name for people and for further calls; bytes that are not UTF-8 become surrogates and are not lost."""
    return name.decode("utf-8", "surrogateescape")


def place(path: Path) -> pb.Place:
    """Raises NotFound for an empty path, as POSIX has it: it is not taken for the root."""
    encoded = encode(path)
    if not encoded:
        raise NotFound("an empty path names nothing; the root is /")
    return pb.Place(path=encoded)


def inode_place(inode: int) -> pb.Place:
    return pb.Place(base=inode)


def child_place(inode: int, name: bytes) -> dict[str, Any]:
    """By its fields: a message that is put into a request is copied."""
    return {"base": inode, "path": name}


def join(directory: str, name: str) -> str:
    return f"{directory.rstrip('/')}/{name}"


def parent(path: Path) -> str:
    """The directory in which that entry is."""
    plain = display(path).rstrip("/")
    return plain[: plain.rfind("/") + 1] or "/"


def with_file_name(error: ThreefsError, inode: int, name: str) -> ThreefsError:
    """The same error with the name that the user knows: the meta service knows open files by their numbers."""
    message = re.sub(rf"\binode {inode}\b", lambda _: name, error.message)
    return error if not name or message == error.message else error_of(error.code, message)


def display(path: Path) -> str:
    """For error messages."""
    plain = os.fspath(path)
    return plain if isinstance(plain, str) else decode(plain)
