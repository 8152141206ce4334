"""Many places at once, in one transaction: directories that they have in common are walked to only once.

It finds what `walk.find` would find for each of them.
"""

from collections.abc import Sequence

from threefs.errors import Conflict, Corrupt, ThreefsError, Throttled, TooOld
from threefs.kv import records
from threefs.wire import meta_pb2 as pb
from threefs_meta import entries, keys, paths
from threefs_meta.actors import Actor
from threefs_meta.namespace import Namespace
from threefs_meta.permissions import SEARCH, permits
from threefs_meta.walk import find, not_found, walk

#: Bytes are an inode's record as it lies in the store and is shown: that of anything but a directory.
Found = pb.Inode | bytes | ThreefsError
#: An inode's record begins with its number and its type, as protobuf writes them: tag, eight bytes, tag, one byte.
_TYPE_AT = 10
_INODE_TAG, _TYPE_TAG_AT, _TYPE_TAG = 0x09, 9, 0x10


class Finder:
    def __init__(self, names: Namespace, actor: Actor, *, follow: bool) -> None:
        self._names = names
        self._actor = actor
        self._follow = follow
        self._directories: dict[tuple[int, bytes], int] = {}  # 0: what lies there has to be walked to

    async def find(self, places: Sequence[pb.Place]) -> list[Found]:
        """The inode of each as it is shown, or why there is none."""
        found: list[Found | None] = [None] * len(places)
        wanted = await self._entries(places, found)
        await self._inodes(wanted, found)
        return [await self._walk(place) if one is None else one for place, one in zip(places, found, strict=True)]

    async def _entries(self, places: Sequence[pb.Place], found: list[Found | None]) -> list[tuple[int, int]]:
        """(number of the place, its inode) as far as an entry that can be looked up says so."""
        rows: list[tuple[int, bytes]] = []
        wanted: list[tuple[int, int]] = []
        directories = self._directories
        for number, place in enumerate(places):
            path, base = place.path, place.base
            if not path and base:
                wanted.append((number, base))
                continue
            above, _, name = path.rpartition(b"/")
            at = directories.get((base, above))
            if at is None:
                at = await self._directory(base, above)
            if at and paths.is_plain(name) and len(path) <= paths.MAX_PATH_BYTES:
                rows.append((number, keys.entry(at, name)))
        values = await self._names.tx.get_many([key for _, key in rows])
        for (number, key), value in zip(rows, values, strict=True):
            try:
                if value is None:
                    found[number] = not_found(places[number])
                    continue
                inode, kind = entries.decode(value, key)
            except Corrupt as error:
                found[number] = error
                continue
            if kind != pb.SYMLINK or not self._follow:
                wanted.append((number, inode))
        return wanted

    async def _inodes(self, wanted: Sequence[tuple[int, int]], found: list[Found | None]) -> None:
        rows = [keys.inode(inode) for _, inode in wanted]
        values = await self._names.tx.get_many(rows)
        for (number, _), key, value in zip(wanted, rows, values, strict=True):
            if value is None:
                continue  # the walk says what that means
            try:
                body = records.body(value, key)
                if is_plain_record(body):
                    found[number] = body
                else:
                    found[number] = await self._names.shown(records.parsed(body, pb.Inode, key))
            except Corrupt as error:
                found[number] = error

    async def _directory(self, base: int, path: bytes) -> int:
        """The directory that the actor may search; 0 if there is anything else to be said about it."""
        number = 0
        try:
            spot = await walk(self._names, pb.Place(base=base, path=path), self._actor, follow=True)
            if spot.entry is not None and spot.entry.type == pb.DIRECTORY:
                number = spot.entry.inode
            if number and not self._actor.is_super:
                number *= permits(await self._names.directory(number), self._actor, SEARCH)
        except (Conflict, TooOld, Throttled):
            raise
        except ThreefsError:
            number = 0
        self._directories[base, path] = number
        return number

    async def _walk(self, place: pb.Place) -> Found:
        try:
            _, inode = await find(self._names, place, self._actor, follow=self._follow)
            return await self._names.shown(inode)
        except (Conflict, TooOld, Throttled):
            raise
        except ThreefsError as error:
            return error


def is_plain_record(body: bytes) -> bool:
    """Of an inode that is shown as it is stored."""
    return (
        len(body) > _TYPE_AT
        and body[0] == _INODE_TAG
        and body[_TYPE_TAG_AT] == _TYPE_TAG
        and body[_TYPE_AT] != pb.DIRECTORY
    )
