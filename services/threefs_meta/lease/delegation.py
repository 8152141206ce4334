"""The decisions about delegations of directories; no I/O happens here.

A delegation is part of the directory's record. Every transaction that adds a name has read that record, so a change of
the delegation is a conflict.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from threefs.ids import ROOT
from threefs.leases import DELEGATION_RECALL_S
from threefs.wire import meta_pb2 as pb

#: Several clients add names to a directory whose delegation was recalled: for this many ticks it gets no other one.
COOLDOWN_TICKS = 4


@dataclass(slots=True)
class Creator:
    """The client for which a transaction adds names."""

    client: bytes
    request: int  # the number of the request, by which it is older or newer than a delegation
    places: Sequence[pb.Place] = ()  # where the client expects the names


class DelegationHeld(Exception):
    """Another client's delegation forbids a name. Its end is to be waited for outside of the transaction."""

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
    """Whose delegation it is, as seen by a creator that is about to add this name.

    The holder knows its own requests since the delegation began, and the names that they add. A name that it does not
    expect (through a symbolic link, or from an old request that a service was slow to make) counts as another client's.
    """
    if not held.client:
        return Ownership.FREE
    if creator is None or creator.client != held.client or creator.request < held.oldest:
        return Ownership.THEIRS
    expected = any(place.path == name and (place.base or ROOT) == directory for place in creator.places)
    return Ownership.OURS if expected else Ownership.THEIRS


def may_grant(held: pb.Delegation, client: bytes, number: int, tick: int) -> bool:
    """Whether the client may get the delegation with this number.

    A client may replace its own delegation by a newer one, because it asks only while it relies on none. An older one,
    from a request that was delayed, would be returned at once, together with the one that the client relies on now.
    """
    if held.client:
        return held.client == client and held.number < number and not held.recalled
    return not held.recalled_tick or tick >= held.recalled_tick + COOLDOWN_TICKS


def granted(client: bytes, number: int, oldest: int) -> pb.Delegation:
    return pb.Delegation(client=client, number=number, oldest=oldest)


def recall(held: pb.Delegation, tick: int) -> None:
    assert held.client, "only a delegation that a client holds is recalled"
    held.recalled = True
    held.recalled_tick = tick


def may_revoke(held: pb.Delegation, seen_s: float, now_s: float) -> bool:
    """Whether a service that saw the recall at `seen_s` of its own clock may end the delegation without its holder."""
    assert now_s >= seen_s, "both are of one monotonic clock"
    return held.recalled and now_s - seen_s >= DELEGATION_RECALL_S


def clear(inode: pb.Inode) -> None:
    """End the delegation. The tick of the last recall stays, for the cooldown."""
    tick = inode.delegation.recalled_tick
    inode.ClearField("delegation")
    if tick:
        inode.delegation.recalled_tick = tick
