"""The room at the other replicas of a chain, asked when a head refuses writes of clients.

A full head gives way to a replica that has room. Clients get "no space" only if no replica that could become the head
has room: then the chain is full, and another head would not help. If too few replicas serve, the error says why the
others do not.
"""

import asyncio
import enum

from threefs.background import cancel_and_wait
from threefs.env.clock import Clock
from threefs.env.shielded_wait import shielded
from threefs.errors import NoSpace, NotServing, ThreefsError, TooFewReplicas, Unavailable
from threefs.ids import TargetId
from threefs.routing import ChainMember, PublicState
from threefs.rpc.methods import SPACE_INFO
from threefs.rpc.traffic_class import TrafficClass
from threefs.wire import storage_pb2 as pb
from threefs_storage.peer_targets import PeerTargets
from threefs_storage.target import Target

_CALL_S = 1.0
#: How long an answer is used again. Without that, every write to a full chain would ask the other replicas.
_KEPT_S = 1.0
#: The new head must have room for this many chunks.
_CHUNKS = 2


class PeerRoom(enum.Enum):
    """The best answer of the other replicas of a chain."""

    TAKES_OVER = "a serving one has room"
    SOON = "one that does not serve yet has room, or one did not answer"
    NOTHING = "none has room"


class PeerRoomQuery:
    """Asks the other replicas of the chains of this process."""

    def __init__(self, peers: PeerTargets, *, clock: Clock) -> None:
        self._peers = peers
        self._clock = clock
        #: By target: the chain version that was asked about, when, and the answer.
        self._answers: dict[int, tuple[int, float, asyncio.Task[PeerRoom]]] = {}
        self._absences: dict[int, tuple[int, float, asyncio.Task[str]]] = {}  # the same for those that do not serve

    async def ask(self, target: Target, chunk_bytes: int) -> PeerRoom:
        """The answer of the other replicas. Calls at the same time share one request."""
        version, now = target.chain.version, self._clock.monotonic()
        known = self._answers.get(target.target_id)
        if known is None or known[0] != version or now - known[1] >= _KEPT_S:
            asked = asyncio.create_task(self._ask_all(target, _CHUNKS * chunk_bytes))
            known = self._answers[target.target_id] = (version, now, asked)
        return await shielded(known[2])

    async def absences(self, target: Target, chunk_bytes: int) -> str:
        """Why members of the chain do not serve, in words. Calls at the same time share one request."""
        version, now = target.chain.version, self._clock.monotonic()
        known = self._absences.get(target.target_id)
        if known is None or known[0] != version or now - known[1] >= _KEPT_S:
            asked = asyncio.create_task(self._ask_absent(target, _CHUNKS * chunk_bytes))
            known = self._absences[target.target_id] = (version, now, asked)
        return await shielded(known[2])

    def nodes(self, target: Target) -> str:
        """Those of all members of the chain, in words. Those that are out of it were not asked."""
        members = sorted(target.chain.members, key=lambda member: member.state not in _ASKED)
        return ", ".join(
            self._peers.node_of(member.target_id) + ("" if member.state in _ASKED else " is out of the chain")
            for member in members
        )

    async def stop(self) -> None:
        tasks = [*self._answers.values(), *self._absences.values()]
        await cancel_and_wait(*(task for _, _, task in tasks))

    async def _ask_absent(self, target: Target, least_bytes: int) -> str:
        absent = [member for member in target.chain.members if member.state is not PublicState.SERVING]
        return ", ".join(await asyncio.gather(*(self._absence(member, least_bytes) for member in absent)))

    async def _absence(self, member: ChainMember, least_bytes: int) -> str:
        node = self._peers.node_of(member.target_id)
        try:
            room_bytes = await room_bytes_of(self._peers, member.target_id)
        except ThreefsError:
            return f"{node} does not answer"
        if room_bytes < least_bytes:
            return f"the disk of {node} is full"
        return f"{node} is brought up to date" if member.state in _ASKED else f"{node} has left the chain"

    async def _ask_all(self, target: Target, least_bytes: int) -> PeerRoom:
        others = [m for m in target.chain.members if m.target_id != target.target_id and m.state in _ASKED]
        found = await asyncio.gather(*(self._ask_member(member, least_bytes) for member in others))
        return min(found, key=list(PeerRoom).index, default=PeerRoom.NOTHING)

    async def _ask_member(self, member: ChainMember, least_bytes: int) -> PeerRoom:
        try:
            room_bytes = await room_bytes_of(self._peers, member.target_id)
        except ThreefsError:
            return PeerRoom.SOON  # it will answer again, or leave the chain
        if room_bytes < least_bytes:
            return PeerRoom.NOTHING
        return PeerRoom.TAKES_OVER if member.state is PublicState.SERVING else PeerRoom.SOON


async def room_bytes_of(peers: PeerTargets, target_id: TargetId, traffic: TrafficClass = TrafficClass.DATA) -> int:
    """The room that a target says it has for clients' writes. Raises what the call fails with."""
    reply = await peers.call(target_id, SPACE_INFO, pb.SpaceInfoRequest(), timeout_s=_CALL_S, traffic=traffic)
    return next((int(space.room_bytes) for space in reply.targets if space.target == target_id), 0)


_ASKED = (PublicState.SERVING, PublicState.SYNCING, PublicState.WAITING)


def refusal(target: Target, found: PeerRoom, nodes: str) -> ThreefsError:
    """The error for a client whose write found no room at this target. `nodes` hold the chain."""
    chain_id = target.chain.chain_id
    if found is PeerRoom.TAKES_OVER:
        return NotServing(f"the head of chain {chain_id} has no room and gives way to another replica")
    if found is PeerRoom.SOON:
        return Unavailable(f"chain {chain_id} has no room until another of its replicas serves")
    return NoSpace(
        f"the file system is full: no disk of chain {chain_id} ({nodes}) has room; remove files or add disks, or start "
        "what is out of the chain (`threefs status`)"
    )


def too_few(target: Target, absences: str) -> TooFewReplicas:
    """The error for a client whose write needs more replicas than serve."""
    chain = target.chain
    return TooFewReplicas(
        f"chain {chain.chain_id} has {target.serving_count} of {len(chain.members)} copies, and at least "
        f"{target.min_replicas} are needed for a write: {absences}. Start what has stopped, remove files or add disks "
        "where disks are full (`threefs status`), or lower the minimum (`threefs chain min-replicas`)"
    )
