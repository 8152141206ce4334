"""What a claim of a directory allows. No I/O happens here: a claim is part of the directory's record, which everybody
who adds a name has read, so a change of it is a conflict.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from threefs.ids import ROOT
from threefs.leases import DELEGATION_RECALL_S
from threefs.wire import meta_pb2 as pb

#: A directory in which a claim was recalled has names from several clients: for so many ticks nobody gets another one.
COOLDOWN_TICKS = 4


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

    def matches(self, held: pb.Delegation) -> bool:
        return is_same(held, self.client, self.number)


def is_same(held: pb.Delegation, client: bytes, number: int) -> bool:
    return held.client == client and held.number == number


class Ownership(Enum):
    FREE = 1
    OURS = 2
    THEIRS = 3


def ownership(held: pb.Delegation, creator: Creator | None, directory: int, name: bytes) -> Ownership:
    """Whose claim it is, for who is about to add that name.

    A client knows what it has asked for since it began to claim, and under which names: what comes of anything else,
    through a link or by a service that was held up, surprises it, and so counts as somebody else's.
    """
    if not held.client:
        return Ownership.FREE
    if creator is None or creator.client != held.client or creator.request < held.oldest:
        return Ownership.THEIRS
    expected = any(place.path == name and (place.base or ROOT) == directory for place in creator.places)
    return Ownership.OURS if expected else Ownership.THEIRS


def may_grant(held: pb.Delegation, client: bytes, number: int, tick: int) -> bool:
    """Its own one a client may replace by a newer one: it asks only when it relies on none. An older one that was held
    up would be given back at once, and with it the one that the client relies on by now."""
    if held.client:
        return held.client == client and held.number < number and not held.recalled
    return not held.recalled_tick or tick >= held.recalled_tick + COOLDOWN_TICKS


def granted(client: bytes, number: int, oldest: int) -> pb.Delegation:
    return pb.Delegation(client=client, number=number, oldest=oldest)


def recall(held: pb.Delegation, tick: int) -> None:
    held.recalled = True
    held.recalled_tick = tick


def may_revoke(held: pb.Delegation, seen_s: float, now_s: float) -> bool:
    """Without its client, by who has seen it recalled at that time of the own clock."""
    return held.recalled and now_s - seen_s >= DELEGATION_RECALL_S


def clear(inode: pb.Inode) -> None:
    """Nobody claims the directory any more."""
    tick = inode.delegation.recalled_tick
    inode.ClearField("delegation")
    if tick:
        inode.delegation.recalled_tick = tick
