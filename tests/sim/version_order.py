"""In which order the cluster says that it made the changes of each chunk: a hint for the checker, never believed.

A change has its identity from its client, and the version that it made names that identity in the record that was
committed. Versions of a chunk have an order; so have the changes then.
"""

import contextlib
from collections.abc import Mapping
from typing import Any

from tests.sim.world import World
from threefs.cluster.chunk_client import _CHANNEL, ChunkClient
from threefs.cluster.chunk_update import ChunkUpdate
from threefs.ids import ChunkId

#: Of a write: its client, its channel, and its number there.
_Identity = tuple[bytes, int, int]
_Piece = tuple[bytes, ChunkId, int, bytes]


class Order:
    def __init__(self, world: World) -> None:
        self._world = world
        self._places: dict[int, int] = {}  # of operations in the history of their chunk, by identity of the update
        #: ... and by client, offset and payload, if others are joined to it; a short payload may come again
        self._pieces: dict[_Piece, list[int]] = {}
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

    def note(self, chunks: ChunkClient, update: ChunkUpdate, place: int) -> None:
        """That change of this client has that place in the history of its chunk."""
        self._places[id(update)] = place
        self._pieces.setdefault(_piece(bytes(chunks._client), update), []).append(place)

    def of(self, chunk: ChunkId) -> list[int]:
        """Places in its history, as they took effect."""
        made = self._made.get(chunk, {})
        left = {piece: list(places) for piece, places in self._pieces.items()}
        return [place for version in sorted(made) for place in self._places_of(made[version], left)]

    def _places_of(self, identity: _Identity, left: Mapping[_Piece, list[int]]) -> list[int]:
        update = self._updates.get(identity)
        if update is None:
            return []
        client, _, _ = identity
        if not update.pieces:
            place = self._places[id(update)]
            with contextlib.suppress(ValueError):  # an earlier one with the same bytes may have been taken for it
                left[_piece(client, update)].remove(place)
            return [place]
        payload = b"".join(update.payload_parts)
        found, at, numbers = [], 0, iter(update.pieces)
        for offset, length in zip(numbers, numbers, strict=True):
            places = left[client, update.chunk, offset, payload[at : at + length]]
            found.append(places.pop(0) if len(places) > 1 else places[0])
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


def _piece(client: bytes, update: ChunkUpdate) -> _Piece:
    return client, update.chunk, update.offset, bytes(update.payload)
