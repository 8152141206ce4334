"""The chunk client of a process whose writes are traced."""

from collections.abc import Sequence
from typing import Any

from threefs.cluster.chunk_client import Applied, ChunkClient
from threefs.cluster.chunk_update import ChunkUpdate
from threefs.errors import ThreefsError
from threefs.routing import Routing
from threefs.telemetry.tracing import Tracing
from threefs.wire import storage_pb2


class TracedChunkClient(ChunkClient):
    """Makes a span of each batch of changes, and sends its context with every change."""

    def __init__(self, *args: Any, tracing: Tracing, **options: Any) -> None:
        """The others are the arguments of `ChunkClient`."""
        super().__init__(*args, **options)
        self._tracing = tracing

    async def apply_each(self, updates: Sequence[ChunkUpdate], *, timeout_s: float) -> list[Applied | ThreefsError]:
        chains = sorted({update.chain for update in updates})
        attributes: dict[str, str | int] = {
            "threefs.chain": ",".join(map(str, chains)),
            "threefs.changes": len(updates),
            "threefs.bytes": sum(update.length for update in updates if update.payload),
        }
        with self._tracing.begun("client write", attributes):
            outcomes = await super().apply_each(updates, timeout_s=timeout_s)
            failed = sum(isinstance(outcome, ThreefsError) for outcome in outcomes)
            self._tracing.note({"threefs.failed": failed})
            return outcomes

    def _request(self, routing: Routing, rows: list[Any]) -> storage_pb2.WriteRequest:
        request = super()._request(routing, rows)
        for write in request.writes:
            write.trace = self._tracing.context()
        return request
