"""Reads what many changes will need in few calls, because a remote store answers many keys as fast as one.

This only saves time. Whatever is not read here is read when a change needs it.
"""

from collections.abc import Sequence

from threefs.errors import Conflict, Corrupt, ThreefsError, Throttled, TooOld
from threefs.wire import meta_pb2 as pb
from threefs_meta.access.credentials import Credentials
from threefs_meta.resolve import paths
from threefs_meta.resolve.resolver import resolve
from threefs_meta.store import entry_codec, keys
from threefs_meta.store.namespace import Namespace


async def prefetch(ns: Namespace, actor: Credentials, changes: Sequence[pb.Change]) -> None:
    """Read entries, inodes and sessions. The memo of `ns` remembers the directories that were resolved."""
    entry_rows: list[bytes] = []
    inode_rows: list[bytes] = []
    tried: set[tuple[int, bytes]] = set()
    for change in changes:
        kind = change.WhichOneof("kind")
        if kind == "close":
            inode_rows += [keys.inode(change.close.inode), keys.session(change.close.inode, change.close.session)]
        elif kind == "sync":
            inode_rows.append(keys.inode(change.sync.inode))
        elif kind == "publish":
            publish = change.publish
            inode_rows += [keys.inode(publish.inode), keys.session(publish.inode, publish.session)]
        for place in _places_of(change):
            above, _, name = place.path.rpartition(b"/")
            if (place.base, above) not in tried:
                tried.add((place.base, above))
                await _resolve(ns, actor, place)
            directory = ns.memo.directory_numbers.get((place.base, above)) if ns.memo is not None else None
            if directory is not None and paths.is_plain(name):
                entry_rows.append(keys.entry(directory, name))
    for key, value in zip(entry_rows, await ns.tx.get_many(entry_rows), strict=True):
        if value is not None:
            inode_rows.append(_inode_key(value, key))
    await ns.tx.get_many(inode_rows)


def _places_of(change: pb.Change) -> Sequence[pb.Place]:
    match change.WhichOneof("kind"):
        case "create":
            return (change.create.place,)
        case "remove":
            return (change.remove.place,)
        case "publish":
            return (change.publish.place,)
        case "rename":
            return change.rename.source, change.rename.destination
    return ()


async def _resolve(ns: Namespace, actor: Credentials, place: pb.Place) -> None:
    try:
        await resolve(ns, place, actor, follow=False)
    except (Conflict, TooOld, Throttled):
        raise
    except ThreefsError:
        pass  # the change meets the error again


def _inode_key(value: bytes, key: bytes) -> bytes:
    try:
        return keys.inode(entry_codec.decode(value, key).inode)
    except Corrupt:
        return key  # the entry itself, which was read already
