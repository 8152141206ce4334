"""The rules one by one; what they are good for together is shown in tests/contract/test_delegations.py."""

import pytest
from threefs_meta.lease import delegation
from threefs_meta.lease.delegation import COOLDOWN_TICKS, Creator, DelegationHeld, Ownership

from threefs.ids import ROOT
from threefs.leases import DELEGATION_RECALL_S
from threefs.wire import meta_pb2 as pb

MINE, OTHER = b"m" * 16, b"o" * 16
HERE = pb.Place(base=7, path=b"name")


@pytest.mark.parametrize(
    ("held", "creator", "expected"),
    [
        (pb.Delegation(), None, Ownership.FREE),
        (pb.Delegation(recalled_tick=5), Creator(OTHER, 1), Ownership.FREE),
        (delegation.granted(MINE, 5, 4), None, Ownership.THEIRS),
        (delegation.granted(MINE, 5, 4), Creator(OTHER, 9, (HERE,)), Ownership.THEIRS),
        (delegation.granted(MINE, 5, 4), Creator(MINE, 4, (HERE,)), Ownership.OURS),
        (delegation.granted(MINE, 5, 4), Creator(MINE, 9, (pb.Place(), HERE)), Ownership.OURS),
        (delegation.granted(MINE, 5, 4), Creator(MINE, 3, (HERE,)), Ownership.THEIRS),
        (delegation.granted(MINE, 5, 4), Creator(MINE, 9), Ownership.THEIRS),
        (delegation.granted(MINE, 5, 4), Creator(MINE, 9, (pb.Place(base=7, path=b"other"),)), Ownership.THEIRS),
        (delegation.granted(MINE, 5, 4), Creator(MINE, 9, (pb.Place(base=8, path=b"name"),)), Ownership.THEIRS),
    ],
)
def test_ownership_of_a_delegation_by_creator(
    held: pb.Delegation, creator: Creator | None, expected: Ownership
) -> None:
    assert delegation.ownership(held, creator, 7, b"name") is expected


def test_the_root_has_two_numbers() -> None:
    creator = Creator(MINE, 9, (pb.Place(path=b"name"),))
    assert delegation.ownership(delegation.granted(MINE, 5, 4), creator, ROOT, b"name") is Ownership.OURS


def test_grants_of_delegations() -> None:
    free, mine = pb.Delegation(), delegation.granted(MINE, 5, 4)
    assert delegation.may_grant(free, MINE, 1, 1) and delegation.may_grant(mine, MINE, 6, 1)
    assert not delegation.may_grant(mine, OTHER, 6, 1) and not delegation.may_grant(mine, MINE, 4, 1)
    delegation.recall(mine, 10)
    assert not delegation.may_grant(mine, MINE, 6, 99)
    recalled = pb.Delegation(recalled_tick=10)
    assert not delegation.may_grant(recalled, MINE, 6, 9 + COOLDOWN_TICKS) and delegation.may_grant(
        recalled, MINE, 6, 10 + COOLDOWN_TICKS
    )


def test_only_what_is_recalled_ends_without_its_client() -> None:
    held = delegation.granted(MINE, 5, 4)
    assert not delegation.may_revoke(held, 100.0, 200.0)
    delegation.recall(held, 10)
    assert not delegation.may_revoke(held, 100.0, 100.0 + 0.9 * DELEGATION_RECALL_S) and delegation.may_revoke(
        held, 100.0, 101.0
    )


def test_records_that_a_delegation_leaves() -> None:
    inode = pb.Inode(delegation=delegation.granted(MINE, 5, 4))
    assert DelegationHeld(7, MINE, 5).matches(inode.delegation) and not DelegationHeld(7, MINE, 6).matches(
        inode.delegation
    )
    delegation.clear(inode)
    assert inode == pb.Inode()
    inode.delegation.CopyFrom(delegation.granted(MINE, 5, 4))
    delegation.recall(inode.delegation, 10)
    delegation.clear(inode)
    assert inode == pb.Inode(delegation=pb.Delegation(recalled_tick=10))
