"""The events of a chunk that the members of its chain and the manager remember, in one row. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from threefs.wire import manager_pb2 as pb
from threefs.wire import storage_pb2
from threefs_cli.chunk_copies import Copy

_WORDS = {
    "early": "got version {version} ahead of its turn",
    "staged": "has version {version} on its disk",
    "forwarding": "forwards version {version} to target {to}",
    "committed": "has committed version {version}",
    "shipped": "sends the whole chunk, version {version}, to target {to}",
    "repaired": "has repaired its copy, version {version}",
    "collected": "has forgotten the removal, version {version}",
}


@dataclass(frozen=True, slots=True)
class Event:
    """One event. Times are those of its own process, so the order of events of different ones may be off a little."""

    ago_ms: int
    target_id: int  # 0: of the chain
    what: str
    text: str


def merged(copies: Iterable[Copy], chain: Iterable[pb.ChainEvent]) -> list[Event]:
    """Oldest first."""
    events = [_of_chain(event) for event in chain]
    for copy in copies:
        events += [
            _of_chunk(copy.member.target_id, event) for event in (copy.reply.events if copy.reply is not None else ())
        ]
    return sorted(events, key=lambda event: -event.ago_ms)


def _of_chain(event: pb.ChainEvent) -> Event:
    members = ", ".join(
        f"{member.target_id} {pb.PublicState.Name(member.state).lower()}" + (" (leaving)" if member.leaving else "")
        for member in event.chain.members
    )
    return Event(event.ago_ms, 0, "chain", f"the chain became version {event.chain.version}: {members}")


def _of_chunk(target_id: int, event: storage_pb2.ChunkEvent) -> Event:
    words = _WORDS.get(event.what, event.what + " version {version}" if event.version else event.what)
    return Event(event.ago_ms, target_id, event.what, words.format(version=event.version, to=event.to_target))


def line(event: Event) -> str:
    subject = f"target {event.target_id} " if event.target_id else ""
    return f"{event.ago_ms / 1000:>8.1f} s ago  {subject}{event.text}"


def describe(event: Event) -> dict[str, Any]:
    return {"ago_ms": event.ago_ms, "target_id": event.target_id or None, "what": event.what, "text": event.text}
