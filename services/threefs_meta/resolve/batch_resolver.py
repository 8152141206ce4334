"""Resolves many places in one transaction: a directory that they have in common is resolved only once.

The result for each place is that of `resolver.find`.
"""

from collections.abc import Iterable, Sequence

from threefs.errors import Conflict, Corrupt, ThreefsError, Throttled, TooOld
from threefs.kv import records
from threefs.wire import meta_pb2 as pb
from threefs_meta.access.credentials import Credentials
from threefs_meta.access.permissions import SEARCH, permits
from threefs_meta.resolve import paths
from threefs_meta.resolve.resolver import find, not_found, resolve
from threefs_meta.store import entry_codec, keys, serialized_inodes
from threefs_meta.store.entry_codec import Entry
from threefs_meta.store.namespace import Namespace

#: An inode as replies show it, serialized; or why there is none.
Found = bytes | ThreefsError
_MAX_KEY_BYTES = len(keys.entry(0, b"n" * paths.MAX_NAME_BYTES))
#: The path of a longer directory may exceed MAX_PATH_BYTES together with a name.
_MAX_DIRECTORY_BYTES = paths.MAX_PATH_BYTES - paths.MAX_NAME_BYTES - 1


class _Search:
    """The places of one call, and what has been found of them."""

    __slots__ = ("found", "inodes", "numbers", "to_complete")

    def __init__(self, places: int) -> None:
        self.found: list[Found | None] = [None] * places
        #: Places whose inode is shown as it is stored: their numbers, and the inodes.
        self.numbers: list[int] = []
        self.inodes: list[int] = []
        self.to_complete: list[tuple[int, int]] = []  # (number of the place, directory): times and links are added


class BatchResolver:
    def __init__(self, ns: Namespace, actor: Credentials, *, follow: bool) -> None:
        self._ns = ns
        self._actor = actor
        self._follow = follow
        #: By base and path: what the keys of a directory's entries begin with; empty if each place is resolved alone.
        self._prefixes: dict[int, dict[bytes, bytes]] = {}

    async def find(self, base: int, wanted: Sequence[bytes]) -> list[Found]:
        """The inode of each path below `base`, or why there is none."""
        search = _Search(len(wanted))
        if base:
            await self._group_by_base(search, [(number, base, path) for number, path in enumerate(wanted)])
        else:
            await self._read_entries(search, 0, range(len(wanted)), wanted)
        await self._read_inodes(search)
        return [
            await self._resolve_one(pb.Place(base=base, path=path)) if one is None else one
            for path, one in zip(wanted, search.found, strict=True)
        ]

    async def find_places(self, places: Sequence[pb.Place]) -> list[Found]:
        """The same for places that may lie below different inodes."""
        search = _Search(len(places))
        await self._group_by_base(search, [(number, place.base, place.path) for number, place in enumerate(places)])
        await self._read_inodes(search)
        return [
            await self._resolve_one(place) if one is None else one
            for place, one in zip(places, search.found, strict=True)
        ]

    async def _group_by_base(self, search: "_Search", places: Iterable[tuple[int, int, bytes]]) -> None:
        below: dict[int, tuple[list[int], list[bytes]]] = {}
        for number, base, path in places:
            if base and not path:
                search.to_complete.append((number, base))
                continue
            if base not in below:
                below[base] = [], []
            numbers, wanted = below[base]
            numbers.append(number)
            wanted.append(path)
        for base, (numbers, wanted) in below.items():
            await self._read_entries(search, base, numbers, wanted)

    async def _read_entries(
        self, search: "_Search", base: int, numbers: Sequence[int], wanted: Sequence[bytes]
    ) -> None:
        """Look up the entries of places in directories that are resolved."""
        parts = [path.rpartition(b"/") for path in wanted]
        prefixes = self._prefixes.setdefault(base, {})
        for above in dict.fromkeys([above for above, _, _ in parts]):
            if above not in prefixes:
                prefixes[above] = await self._directory_prefix(base, above)
        rows = [prefixes[above] + name for above, _, name in parts]
        if not all(prefixes.values()) or max(map(len, rows), default=0) > _MAX_KEY_BYTES:
            some = [at for at, (above, _, name) in enumerate(parts) if prefixes[above] and paths.is_plain(name)]
            rows = [rows[at] for at in some]
            numbers, wanted = [numbers[at] for at in some], [wanted[at] for at in some]
        values = await self._ns.tx.get_many(rows)
        found, follow = search.found, self._follow
        for number, path, entry in zip(numbers, wanted, entry_codec.decode_many(values, rows), strict=True):
            if type(entry) is Entry:
                inode, kind = entry
                if kind == pb.DIRECTORY:
                    search.to_complete.append((number, inode))
                elif kind != pb.SYMLINK or not follow:
                    search.numbers.append(number)
                    search.inodes.append(inode)
            elif isinstance(entry, Corrupt):
                found[number] = entry
            elif paths.is_plain(path.rpartition(b"/")[2]):
                found[number] = not_found(pb.Place(base=base, path=path))

    async def _read_inodes(self, search: "_Search") -> None:
        """Places whose inode is missing stay None: they are resolved alone, which says what is wrong."""
        found, numbers = search.found, search.numbers
        assert len(numbers) == len(search.inodes), "each place has one inode"
        rows = keys.inodes(search.inodes + [inode for _, inode in search.to_complete])
        stored = records.bodies(await self._ns.tx.get_many(rows), rows)
        for number, body in zip(numbers, stored, strict=False):
            found[number] = body
        behind = len(numbers)
        shown: dict[int, Found | None] = {}  # many places are often the same directory
        for (number, inode), key, body in zip(search.to_complete, rows[behind:], stored[behind:], strict=True):
            if inode not in shown:
                shown[inode] = await self._serialized(body, key) if isinstance(body, bytes) else body
            found[number] = shown[inode]
        assert len(found) >= len(rows), "no place has two inodes"

    async def _serialized(self, body: bytes, key: bytes) -> Found:
        try:
            return await serialized_inodes.with_times(self._ns, body, key)
        except Corrupt as error:
            return error

    async def _directory_prefix(self, base: int, path: bytes) -> bytes:
        """The prefix of the keys of a directory's entries; empty unless the actor may search it."""
        number = 0
        if len(path) > _MAX_DIRECTORY_BYTES:
            return b""
        try:
            resolved = await resolve(self._ns, pb.Place(base=base, path=path), self._actor, follow=True)
            if resolved.entry is not None and resolved.entry.type == pb.DIRECTORY:
                number = resolved.entry.inode
            if number and not self._actor.is_super:
                number *= permits(await self._ns.directory(number), self._actor, SEARCH)
        except (Conflict, TooOld, Throttled):
            raise
        except ThreefsError:
            number = 0
        return keys.entry(number, b"") if number else b""

    async def _resolve_one(self, place: pb.Place) -> Found:
        try:
            _, inode = await find(self._ns, place, self._actor, follow=self._follow)
            return (await self._ns.with_times(inode)).SerializeToString()
        except (Conflict, TooOld, Throttled):
            raise
        except ThreefsError as error:
            return error
