"""What a claim of a directory allows. No I/O happens here: a claim is part of the directory's record, which everybody
who adds a name has read, so a change of it is a conflict.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from threefs.delegations import RECALL_S
from threefs.ids import ROOT
from threefs.wire import meta_pb2 as pb

#: A directory in which a claim was recalled has names from several clients: for so many ticks nobody gets another one.
QUIET_TICKS = 4


@dataclass(slots=True)
class Creator:
    """Who asks for names."""

    client: bytes
    request: int
    places: Sequence[pb.Place] = ()  # where it expects them


class DelegationHeld(Exception):
    """Somebody else's claim is in the way of a name: it is to be waited for, outside of the transaction."""

    def __init__(self, directory: int, client: bytes, number: int) -> None:
        super().__init__(directory, client, number)
        self.directory = directory
        self.client = client
        self.number = number

    def is_of(self, claim: pb.Delegation) -> bool:
        return is_claim(claim, self.client, self.number)


def is_claim(claim: pb.Delegation, client: bytes, number: int) -> bool:
    return claim.client == client and claim.number == number


class Standing(Enum):
    FREE = 1
    OURS = 2
    THEIRS = 3


def standing(claim: pb.Delegation, adder: Creator | None, directory: int, name: bytes) -> Standing:
    """Whose claim it is, for who is about to add that name.

    A client knows what it has asked for since it began to claim, and under which names: what comes of anything else,
    through a link or by a service that was held up, surprises it, and so counts as somebody else's.
    """
    if not claim.client:
        return Standing.FREE
    if adder is None or adder.client != claim.client or adder.request < claim.oldest:
        return Standing.THEIRS
    expected = any(place.path == name and (place.base or ROOT) == directory for place in adder.places)
    return Standing.OURS if expected else Standing.THEIRS


def may_take(claim: pb.Delegation, client: bytes, number: int, tick: int) -> bool:
    """Its own one a client may replace by a newer one: it asks only when it relies on none. An older one that was held
    up would be given back at once, and with it the one that the client relies on by now."""
    if claim.client:
        return claim.client == client and claim.number < number and not claim.recalled
    return not claim.recalled_tick or tick >= claim.recalled_tick + QUIET_TICKS


def taken(client: bytes, number: int, oldest: int) -> pb.Delegation:
    return pb.Delegation(client=client, number=number, oldest=oldest)


def recall(claim: pb.Delegation, tick: int) -> None:
    claim.recalled = True
    claim.recalled_tick = tick


def may_end(claim: pb.Delegation, seen_s: float, now_s: float) -> bool:
    """Without its client, by who has seen it recalled at that time of the own clock."""
    return claim.recalled and now_s - seen_s >= RECALL_S


def end(inode: pb.Inode) -> None:
    """Nobody claims the directory any more."""
    tick = inode.delegation.recalled_tick
    inode.ClearField("delegation")
    if tick:
        inode.delegation.recalled_tick = tick
