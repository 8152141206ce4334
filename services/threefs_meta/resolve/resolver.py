"""From a place to an inode: walks the components of a path, through symbolic links, '.' and '..'."""

import asyncio
from typing import NamedTuple

from threefs.errors import AccessDenied, NameTooLong, NotADirectory, NotFound, TooManySymlinks
from threefs.ids import ROOT
from threefs.wire import meta_pb2 as pb
from threefs_meta.access.credentials import TRUSTED, Credentials
from threefs_meta.access.permissions import SEARCH, permits
from threefs_meta.batch.txn_memo import TxnMemo
from threefs_meta.resolve import paths
from threefs_meta.resolve.paths import shown_place as _shown
from threefs_meta.store.entry_codec import Entry
from threefs_meta.store.namespace import Namespace


class Resolution(NamedTuple):
    """Where a walk ended."""

    parent: int  # the directory that has the entry, or would have it
    name: bytes  # empty when the path names no entry: '/', '.', '..', or an inode alone
    entry: Entry | None  # None: nothing is there
    rest: tuple[bytes, ...] = ()  # components behind a missing one


async def resolve(ns: Namespace, place: pb.Place, actor: Credentials = TRUSTED, *, follow: bool) -> Resolution:
    """Go to `place`. `follow`: also through a symbolic link in the last component.

    A missing entry is no error, unless '..' comes behind it. Raises NotFound, NotADirectory, TooManySymlinks,
    NameTooLong, InvalidArgument, and AccessDenied where the actor may not search a directory on the way.
    """
    memo = ns.memo
    if place.base:
        resolved = await _resolve_child(ns, place.base, place.path, actor, follow)
        if resolved is not None:
            return resolved
    if memo is not None:
        resolved = await _resolve_memoized(ns, place, follow)
        if resolved is not None:
            return resolved
    rest = paths.split(place.path)
    at = place.base or ROOT
    if at != ROOT:
        base = await ns.read_shared(at)
        if base is None:
            raise NotFound(f"inode {at} does not exist")
        if not rest:
            return _at_inode(at, base.type)
        if base.type != pb.DIRECTORY:
            raise NotADirectory(f"inode {at} is not a directory")
    rest.reverse()
    links = 0
    while rest:
        if TURNS.due():
            await TURNS.give()
        name = rest.pop()
        if not actor.is_super and not permits(await ns.directory(at), actor, SEARCH):
            raise AccessDenied(f"user {actor.uid} may not search a directory on the way to {_shown(place)}")
        if not rest and memo is not None:
            _memoize(memo, place, at)
            memo = None  # what comes after is behind a link in the last component
        if name == b"..":
            at = (await ns.directory(at)).parent
        elif name != b".":
            entry = await ns.entry(at, name)
            if entry is None:
                return _absent(place, at, name, rest)
            if entry.type == pb.SYMLINK and (follow or rest):
                links += 1
                at = await _follow_symlink(ns, place, entry, at, rest, links)
                continue
            if not rest:
                return Resolution(at, name, entry)
            if entry.type != pb.DIRECTORY:
                raise NotADirectory(f"{paths.shown(name)} in {_shown(place)} is not a directory")
            at = entry.inode
    return _at_inode(at, pb.DIRECTORY)


async def _resolve_child(ns: Namespace, base: int, name: bytes, actor: Credentials, follow: bool) -> Resolution | None:
    """The end of a walk of one step, as mounts ask for nearly always; None: it has to be walked, and may fail."""
    if b"/" in name or not paths.is_plain(name):
        return None
    if base != ROOT:
        directory = await ns.read_shared(base)
        if directory is None or directory.type != pb.DIRECTORY:
            return None
    if not actor.is_super and not permits(await ns.directory(base), actor, SEARCH):
        return None
    entry = await ns.entry(base, name)
    if follow and entry is not None and entry.type == pb.SYMLINK:
        return None
    return Resolution(base, name, entry)


async def _resolve_memoized(ns: Namespace, place: pb.Place, follow: bool) -> Resolution | None:
    """The end of a walk through directories that an earlier one has gone through; None: it has to be walked."""
    assert ns.memo is not None
    path = place.path
    above, _, name = path.rpartition(b"/")
    at = ns.memo.directory_numbers.get((place.base, above))
    if at is None or not paths.is_plain(name) or len(path) > paths.MAX_PATH_BYTES:
        return None
    entry = await ns.entry(at, name)
    if entry is not None and entry.type == pb.SYMLINK and follow:
        return None
    return Resolution(at, name, entry)


def _memoize(memo: TxnMemo, place: pb.Place, at: int) -> None:
    """`at` is where the last component of the path is looked for."""
    above, _, name = place.path.rpartition(b"/")
    if paths.is_plain(name):
        memo.directory_numbers[place.base, above] = at


async def _follow_symlink(ns: Namespace, place: pb.Place, entry: Entry, at: int, rest: list[bytes], links: int) -> int:
    """Put the target of a symbolic link in front of the rest; where to go on from."""
    if links > paths.MAX_SYMLINKS:
        raise TooManySymlinks(f"{_shown(place)} leads through more than {paths.MAX_SYMLINKS} links")
    target = (await ns.require_inode(entry.inode)).target
    rest.extend(reversed(paths.split(target)))
    if len(rest) > paths.MAX_PARTS:
        raise NameTooLong(f"{_shown(place)} leads through more than {paths.MAX_PARTS} components")
    return ROOT if target.startswith(b"/") else at


def _absent(place: pb.Place, at: int, name: bytes, rest: list[bytes]) -> Resolution:
    behind = tuple(part for part in reversed(rest) if part != b".")
    if b".." in behind:
        raise not_found(place)
    return Resolution(at, name, None, behind)


def _at_inode(inode: int, kind: pb.InodeType) -> Resolution:
    return Resolution(inode, b"", Entry(inode, kind))


async def find(
    ns: Namespace, place: pb.Place, actor: Credentials = TRUSTED, *, follow: bool
) -> tuple[Resolution, pb.Inode]:
    """The inode at a place. Raises NotFound."""
    resolved = await resolve(ns, place, actor, follow=follow)
    if resolved.entry is None:
        raise not_found(place)
    if resolved.name:
        return resolved, await ns.require_inode(resolved.entry.inode)
    inode = await ns.inode(resolved.entry.inode)
    if inode is None or _has_lost_name(place, inode):  # '..' or a base of which the record is gone
        raise not_found(place)
    return resolved, inode


def _has_lost_name(place: pb.Place, inode: pb.Inode) -> bool:
    """The name by which somebody has found it may be that of something else by now. Who works in a directory has not
    looked for it."""
    if place.HasField("moves") and inode.type != pb.DIRECTORY:
        return place.moves != inode.moves
    return place.named and not inode.nlink and not inode.unnamed


def not_found(place: pb.Place) -> NotFound:
    return NotFound(f"{_shown(place)}: no such file or directory")


#: Steps of some microseconds each. A batch of 1024 names in a few directories makes less.
MAX_STEPS = 2048


class Turns:
    """Of one event loop: all its calls count together."""

    __slots__ = ("_steps",)

    def __init__(self) -> None:
        self._steps = 0

    def due(self) -> bool:
        """Another step is about to be made. True: `give` is to be awaited before."""
        self._steps += 1
        return self._steps >= MAX_STEPS

    async def give(self) -> None:
        self._steps = 0
        await asyncio.sleep(0)


TURNS = Turns()
