"""What the members of a chain and the manager remember of a chunk, in one row of events. Pure."""

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
class Told:
    """One event. Times are those of its own process, so the order of events of different ones may be off a little."""

    ago_ms: int
    target_id: int  # 0: of the chain
    what: str
    text: str


def tell(copies: Iterable[Copy], chain: Iterable[pb.ChainEvent]) -> list[Told]:
    """Oldest first."""
    told = [_of_chain(event) for event in chain]
    for copy in copies:
        told += [
            _of_chunk(copy.member.target_id, event) for event in (copy.reply.events if copy.reply is not None else ())
        ]
    return sorted(told, key=lambda one: -one.ago_ms)


def _of_chain(event: pb.ChainEvent) -> Told:
    members = ", ".join(
        f"{member.target_id} {pb.PublicState.Name(member.state).lower()}" + (" (leaving)" if member.leaving else "")
        for member in event.chain.members
    )
    return Told(event.ago_ms, 0, "chain", f"the chain became version {event.chain.version}: {members}")


def _of_chunk(target_id: int, event: storage_pb2.ChunkEvent) -> Told:
    words = _WORDS.get(event.what, event.what + " version {version}" if event.version else event.what)
    return Told(event.ago_ms, target_id, event.what, words.format(version=event.version, to=event.to_target))


def line(told: Told) -> str:
    who = f"target {told.target_id} " if told.target_id else ""
    return f"{told.ago_ms / 1000:>8.1f} s ago  {who}{told.text}"


def describe(told: Told) -> dict[str, Any]:
    return {"ago_ms": told.ago_ms, "target_id": told.target_id or None, "what": told.what, "text": told.text}
