"""From a place to an inode: resolves the components of a path, through symbolic links, '.' and '..'."""

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
from threefs_meta.store.namespace import Namespace, is_freed

#: Steps of some microseconds each. A batch of 1024 names in a few directories takes fewer.
MAX_STEPS = 2048


class Turns:
    """Lets other calls run while a long one resolves very many components. One per event loop: all calls count
    together.

    Most stores answer at once, so such a call never waits. It counts its steps, and after some milliseconds' worth of
    them it waits for one turn of the loop. Ordinary calls never come that far.
    """

    __slots__ = ("_steps",)

    def __init__(self) -> None:
        self._steps = 0

    def due(self) -> bool:
        """Count a step. True: await `give` before it."""
        self._steps += 1
        return self._steps >= MAX_STEPS

    async def give(self) -> None:
        self._steps = 0
        await asyncio.sleep(0)


TURNS = Turns()


class Resolution(NamedTuple):
    """Where the resolution of a path ended."""

    parent: int  # the directory that has the entry, or would have it
    name: bytes  # empty when the path names no entry: '/', '.', '..', or an inode alone
    entry: Entry | None  # None: the name does not exist
    rest: tuple[bytes, ...] = ()  # the components behind a missing one


async def resolve(ns: Namespace, place: pb.Place, actor: Credentials = TRUSTED, *, follow: bool) -> Resolution:
    """Resolve a place. `follow`: also through a symbolic link in the last component.

    A missing entry is no error, unless '..' comes after it. Raises NotFound, NotADirectory, TooManySymlinks,
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
        assert name, "a component of a path has a name"
        if not actor.is_super and not permits(await ns.directory(at), actor, SEARCH):
            raise AccessDenied(f"user {actor.uid} may not search a directory on the way to {_shown(place)}")
        if not rest and memo is not None:
            _memoize(memo, place, at)
            memo = None  # further components come from a symbolic link in the last one
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
    """A place with one component, which mounts ask for nearly always. None: resolve it step by step, which may fail."""
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
    """A place in a directory that an earlier change of the transaction has resolved. None: resolve it step by step."""
    assert ns.memo is not None, "the caller has a memo"
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
    """Remember that the last component of this path is looked up in directory `at`."""
    above, _, name = place.path.rpartition(b"/")
    if paths.is_plain(name):
        memo.directory_numbers[place.base, above] = at


async def _follow_symlink(ns: Namespace, place: pb.Place, entry: Entry, at: int, rest: list[bytes], links: int) -> int:
    """Put the target of a symbolic link in front of the rest. Returns the directory where the resolution goes on."""
    if links > paths.MAX_SYMLINKS:
        raise TooManySymlinks(f"{_shown(place)} leads through more than {paths.MAX_SYMLINKS} symbolic links")
    assert entry.type == pb.SYMLINK, "only a symbolic link is followed"
    target = (await ns.require_inode(entry.inode)).target
    rest.extend(reversed(paths.split(target)))
    if len(rest) > paths.MAX_PARTS:
        raise NameTooLong(f"{_shown(place)} leads through more than {paths.MAX_PARTS} components")
    return ROOT if target.startswith(b"/") else at


def _absent(place: pb.Place, at: int, name: bytes, rest: list[bytes]) -> Resolution:
    assert name not in (b"", b".", b".."), "every directory has these: they cannot be absent"
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
    assert not resolved.rest, "nothing is left of a path that leads to an inode"
    inode = await ns.inode(resolved.entry.inode)
    if inode is None or is_freed(inode) or _has_lost_name(place, inode):  # the record of a '..' or of a base is gone
        raise not_found(place)
    return resolved, inode


def _has_lost_name(place: pb.Place, inode: pb.Inode) -> bool:
    """Whether the inode has lost the name by which the caller has found it; the name may be that of another inode now.

    A directory may have been moved since: a caller that works in it has not looked it up by its name.
    """
    if place.HasField("moves") and inode.type != pb.DIRECTORY:
        return place.moves != inode.moves
    return place.named and not inode.nlink and not inode.unnamed


def not_found(place: pb.Place) -> NotFound:
    return NotFound(f"{_shown(place)}: no such file or directory")
