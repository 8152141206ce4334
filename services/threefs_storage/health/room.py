"""Whether another replica of a chain has room for what the head has not.

A full head gives way to one that has. "No space" is the answer to a client only if no replica that could become the
head may take more: then the chain is full, and to change its head would help nobody.
"""

import asyncio
import enum

from threefs.background import cancel_and_wait
from threefs.env.clock import Clock
from threefs.errors import NoSpace, NotServing, ThreefsError, Unavailable
from threefs.ids import TargetId
from threefs.routing import ChainMember, PublicState
from threefs.rpc.methods import SPACE_INFO
from threefs.wire import storage_pb2 as pb
from threefs_storage.peer_targets import PeerTargets
from threefs_storage.target import Target

_CALL_S = 1.0
#: An answer counts for so long: while a chain is full, every write that is refused would ask again.
_KEPT_S = 1.0
#: Room for so many chunks makes it worth while to change the head.
_CHUNKS = 2


class Found(enum.Enum):
    """What the other replicas of a chain have."""

    TAKES_OVER = "a serving one has room"
    SOON = "one that does not serve yet has room, or one did not answer"
    NOTHING = "none has room"


class Room:
    """Asks the other replicas of the chains of this process."""

    def __init__(self, peers: PeerTargets, *, clock: Clock) -> None:
        self._peers = peers
        self._clock = clock
        #: By target: the chain version that was asked about, when, and the answer.
        self._answers: dict[int, tuple[int, float, asyncio.Task[Found]]] = {}

    async def ask(self, target: Target, chunk_bytes: int) -> Found:
        """What the others have. Calls of the same time share one question."""
        version, now = target.chain.version, self._clock.monotonic()
        known = self._answers.get(target.target_id)
        if known is None or known[0] != version or now - known[1] >= _KEPT_S:
            asked = asyncio.create_task(self._ask_all(target, _CHUNKS * chunk_bytes))
            known = self._answers[target.target_id] = (version, now, asked)
        return await asyncio.shield(known[2])

    async def stop(self) -> None:
        await cancel_and_wait(*(task for _, _, task in self._answers.values()))

    async def _ask_all(self, target: Target, least_bytes: int) -> Found:
        others = [m for m in target.chain.members if m.target_id != target.target_id and m.state in _ASKED]
        found = await asyncio.gather(*(self._ask_member(member, least_bytes) for member in others))
        return min(found, key=list(Found).index, default=Found.NOTHING)

    async def _ask_member(self, member: ChainMember, least_bytes: int) -> Found:
        try:
            room_bytes = await self._room_bytes(member.target_id)
        except ThreefsError:
            return Found.SOON  # it answers again, or is taken out of the chain
        if room_bytes < least_bytes:
            return Found.NOTHING
        return Found.TAKES_OVER if member.state is PublicState.SERVING else Found.SOON

    async def _room_bytes(self, target_id: TargetId) -> int:
        reply = await self._peers.call(target_id, SPACE_INFO, pb.SpaceInfoRequest(), timeout_s=_CALL_S)
        return next((int(space.room_bytes) for space in reply.targets if space.target == target_id), 0)


_ASKED = (PublicState.SERVING, PublicState.SYNCING, PublicState.WAITING)


def refusal(target: Target, found: Found) -> ThreefsError:
    """The answer to a client whose write found no room at this target."""
    chain_id = target.chain.chain_id
    if found is Found.TAKES_OVER:
        return NotServing(f"the head of chain {chain_id} has no room and gives way to another replica")
    if found is Found.SOON:
        return Unavailable(f"chain {chain_id} has no room until another of its replicas serves")
    return NoSpace(f"the file system is full: no replica of chain {chain_id} has room; remove files or add disks")
