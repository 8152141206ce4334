"""Paths and names: their limits, how a path is split, how it is shown, and which path leads to a directory."""

from threefs.errors import InvalidArgument, NameTooLong, NotFound
from threefs.ids import ROOT
from threefs.kv import records
from threefs.kv.engine_api import Transaction
from threefs.wire import meta_pb2 as pb
from threefs_meta.store import keys

MAX_NAME_BYTES = 255
MAX_PATH_BYTES = 4096
MAX_TARGET_BYTES = 4095  # of a symbolic link: with its NUL it fits into the buffers of programs
MAX_SYMLINKS = 40  # followed on one path
MAX_PARTS = 4096  # components still to resolve, with those of symbolic links


def split(path: bytes) -> list[bytes]:
    """The components of a path. Leading, doubled and trailing slashes do not count; '.' and '..' stay in."""
    if len(path) > MAX_PATH_BYTES:
        raise NameTooLong(f"a path has at most {MAX_PATH_BYTES} bytes, not {len(path)}")
    check_bytes(path)
    parts = [part for part in path.split(b"/") if part]
    for part in parts:
        if len(part) > MAX_NAME_BYTES:
            raise NameTooLong(f"a name has at most {MAX_NAME_BYTES} bytes, not {len(part)}: {shown(part[:40])}...")
    return parts


def check_name(name: bytes) -> None:
    """Raise InvalidArgument or NameTooLong unless an entry may have this name."""
    if len(name) > MAX_NAME_BYTES:
        raise NameTooLong(f"a name has at most {MAX_NAME_BYTES} bytes, not {len(name)}")
    check_bytes(name)
    if not name or b"/" in name or name in (b".", b".."):
        raise InvalidArgument(f"{shown(name)!r} is not the name of an entry")


def is_plain(name: bytes) -> bool:
    """Whether this can be the name of an entry: `check_name` would raise nothing, if it has no slash."""
    return 0 < len(name) <= MAX_NAME_BYTES and name != b"." and name != b".." and b"\0" not in name


def check_target(target: bytes) -> None:
    """Raise NameTooLong, NotFound or InvalidArgument unless a symbolic link may have this target."""
    if len(target) > MAX_TARGET_BYTES:
        raise NameTooLong(f"the target of a symbolic link has at most {MAX_TARGET_BYTES} bytes, not {len(target)}")
    if not target:
        raise NotFound("the target of a symbolic link is empty")
    check_bytes(target)


def check_bytes(name: bytes) -> None:
    """Names are any bytes except NUL (and '/', which separates them); their encoding is up to users."""
    if b"\0" in name:
        raise InvalidArgument(f"{shown(name)} contains a NUL byte")


def shown(path: bytes) -> str:
    """A path or name as text, for messages."""
    text = path.decode("utf-8", "backslashreplace").replace("\0", "\\0")
    return text if len(text) <= 200 else text[:200] + "..."


def shown_place(place: pb.Place) -> str:
    if place.base:
        return f"inode {place.base}:{shown(place.path)}" if place.path else f"inode {place.base}"
    return "/" + shown(place.path.lstrip(b"/"))


async def path_of(tx: Transaction, directory: int) -> bytes:
    """The path of a directory from the root; empty if it has been removed. These reads cause no conflicts."""
    parts: list[bytes] = []
    number = directory
    while number != ROOT and len(parts) < MAX_PARTS:
        key = keys.inode(number)
        value = await tx.get(key, snapshot=True)
        inode = None if value is None else records.decode(value, pb.Inode, key)
        if inode is None or not inode.nlink:
            return b""
        parts.append(inode.name)
        number = inode.parent
    return b"/" + b"/".join(reversed(parts)) if number == ROOT else b""


async def shown_directory(tx: Transaction, directory: int) -> str:
    """A directory as text, for messages: people know directories by their paths."""
    found = await path_of(tx, directory)
    return shown(found) if found else f"inode {directory}"
