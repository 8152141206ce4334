"""The state of one chunk at a target, for people who search for an error."""

from collections.abc import Sequence

from threefs.errors import Corrupt
from threefs.ids import ChunkId
from threefs.telemetry.event_trace import Event
from threefs.wire import storage_pb2 as pb
from threefs_storage.engine.chunk_record import Record, Version
from threefs_storage.target import Target


def inspect_chunk(target: Target, chunk: ChunkId, events: Sequence[Event], now: float) -> pb.InspectChunkReply:
    """The record of the chunk here, and what this process remembers of it. `now`: by the clock of the events."""
    try:
        record = target.engine.record(chunk) or Record()
        unreadable = False
    except Corrupt:
        record, unreadable = Record(), True
    return pb.InspectChunkReply(
        committed=_version(record.committed),
        pending=_version(record.pending),
        early=chunk in target.early,
        damaged=unreadable or chunk in target.damaged,
        unreadable=unreadable,
        chain_version=target.chain.version,
        events=(_event(event, now) for event in events),
    )


def _version(found: Version | None) -> pb.ChunkVersion | None:
    if found is None:
        return None
    return pb.ChunkVersion(
        version=found.version,
        chain_version=found.chain_version,
        length=found.length,
        checksum=found.checksum,
        removed=found.removed,
        lost=found.lost,
    )


def _event(event: Event, now: float) -> pb.ChunkEvent:
    return pb.ChunkEvent(
        what=event.what,
        ago_ms=round((now - event.at) * 1000),
        version=event.facts.get("version", 0),
        chain_version=event.facts.get("chain_version", 0),
        to_target=event.facts.get("to", 0),
    )
