"""Paths as the meta service takes them. Only paths that cannot be put on the wire are refused here."""

import os
import re
from collections.abc import Mapping
from typing import Any

from threefs.errors import InvalidArgument, NotFound, ThreefsError, error_of
from threefs.wire import meta_pb2 as pb

Path = str | bytes | os.PathLike[str] | os.PathLike[bytes]


def encode(path: Path) -> bytes:
    """The bytes of a path. Raises InvalidArgument for text that is not valid Unicode, and for NUL."""
    plain = path if type(path) is str else _plain(path)
    try:
        # `decode` returns a name that is not UTF-8 with surrogates, which must give the same bytes.
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
    """A name for people and for further calls. Bytes that are not UTF-8 become surrogates, and are not lost."""
    return name.decode("utf-8", "surrogateescape")


def place(path: Path) -> pb.Place:
    """Raises NotFound for an empty path, as POSIX says; it is not the root."""
    encoded = encode(path)
    if not encoded:
        raise NotFound("an empty path names nothing; the root is /")
    return pb.Place(path=encoded)


def inode_place(inode: int) -> pb.Place:
    return pb.Place(base=inode)


def child_place(inode: int, name: bytes) -> dict[str, Any]:
    """The fields of a Place: a message would be copied into the request."""
    return {"base": inode, "path": name}


def join(directory: str, name: str) -> str:
    return f"{directory.rstrip('/')}/{name}"


def parent(path: Path) -> str:
    """The directory that contains the entry."""
    plain = display(path).rstrip("/")
    return plain[: plain.rfind("/") + 1] or "/"


def with_file_name(error: ThreefsError, inode: int, name: str) -> ThreefsError:
    """The same error with the name of the file: the services name files by their inode numbers."""
    return with_file_names(error, {inode: name})


def with_file_names(error: ThreefsError, names: Mapping[int, str]) -> ThreefsError:
    """The same error with the names of these files instead of their inode numbers. An empty name is not known."""
    message = re.sub(r"\binode (\d+)\b", lambda found: names.get(int(found[1])) or found[0], error.message)
    return error if message == error.message else error_of(error.code, message)


def display(path: Path) -> str:
    """A path as error messages show it."""
    plain = os.fspath(path)
    return plain if isinstance(plain, str) else decode(plain)
