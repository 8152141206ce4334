"""In which order the cluster says that it made the changes of each chunk: a hint for the checker, never believed.

A change has its identity from its client, and the version that it made names that identity in the record that was
committed. Versions of a chunk have an order; so have the changes then.
"""

from typing import Any

from tests.sim.world import World
from threefs.cluster.chunk_client import _CHANNEL, ChunkClient
from threefs.cluster.chunk_update import ChunkUpdate
from threefs.ids import ChunkId

#: Of a write: its client, its channel, and its number there.
_Identity = tuple[bytes, int, int]


class Order:
    def __init__(self, world: World) -> None:
        self._world = world
        self._places: dict[int, int] = {}  # of operations in the history of their chunk, by identity of the update
        #: ... and by offset and payload, if others are joined to it
        self._pieces: dict[tuple[ChunkId, int, bytes], int] = {}
        self._updates: dict[_Identity, ChunkUpdate] = {}
        self._made: dict[ChunkId, dict[int, _Identity]] = {}  # version -> what made it
        world.listeners.append(self._hear)

    def follow(self, chunks: ChunkClient) -> None:
        """Learn which identities its changes get. Some get several."""
        number, client = chunks._assign_identity, bytes(chunks._client)

        def numbered(row: Any, known_version: int) -> None:
            number(row, known_version)
            self._updates[client, _CHANNEL, row.seq] = row.update

        chunks._assign_identity = numbered  # type: ignore[method-assign]

    def note(self, update: ChunkUpdate, place: int) -> None:
        """That change has that place in the history of its chunk."""
        self._places[id(update)] = place
        self._pieces[update.chunk, update.offset, bytes(update.payload)] = place

    def of(self, chunk: ChunkId) -> list[int]:
        """Places in its history, as they took effect."""
        made = self._made.get(chunk, {})
        updates = (self._updates.get(made[version]) for version in sorted(made))
        return [place for update in updates if update is not None for place in self._places_of(update)]

    def _places_of(self, update: ChunkUpdate) -> list[int]:
        if not update.pieces:
            return [self._places[id(update)]]
        payload = b"".join(update.payload_parts)
        found, at, numbers = [], 0, iter(update.pieces)
        for offset, length in zip(numbers, numbers, strict=True):
            found.append(self._pieces[update.chunk, offset, payload[at : at + length]])
            at += length
        return found

    def _hear(self, host: str, what: str, chunk: Any, facts: dict[str, Any]) -> None:
        node = self._world.storages.get(host)
        if what != "committed" or node is None:
            return
        for target in node.targets:
            record = target.engine._store._young.get(chunk)  # only looked at: nothing is read for it
            version = None if record is None else record.committed
            if version is not None and version.version == facts["version"] and version.identity is not None:
                client, channel, seq = version.identity
                self._made.setdefault(chunk, {}).setdefault(version.version, (client, channel, seq))
