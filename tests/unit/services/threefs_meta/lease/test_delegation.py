"""The rules one by one; what they are good for together is shown in tests/contract/test_delegations.py."""

import pytest
from threefs_meta.lease import delegation
from threefs_meta.lease.delegation import QUIET_TICKS, Creator, DelegationHeld, Standing

from threefs.delegations import RECALL_S
from threefs.ids import ROOT
from threefs.wire import meta_pb2 as pb

MINE, OTHER = b"m" * 16, b"o" * 16
HERE = pb.Place(base=7, path=b"name")


@pytest.mark.parametrize(
    ("claim", "adder", "expected"),
    [
        (pb.Delegation(), None, Standing.FREE),
        (pb.Delegation(recalled_tick=5), Creator(OTHER, 1), Standing.FREE),
        (delegation.taken(MINE, 5, 4), None, Standing.THEIRS),
        (delegation.taken(MINE, 5, 4), Creator(OTHER, 9, (HERE,)), Standing.THEIRS),
        (delegation.taken(MINE, 5, 4), Creator(MINE, 4, (HERE,)), Standing.OURS),
        (delegation.taken(MINE, 5, 4), Creator(MINE, 9, (pb.Place(), HERE)), Standing.OURS),
        (delegation.taken(MINE, 5, 4), Creator(MINE, 3, (HERE,)), Standing.THEIRS),
        (delegation.taken(MINE, 5, 4), Creator(MINE, 9), Standing.THEIRS),
        (delegation.taken(MINE, 5, 4), Creator(MINE, 9, (pb.Place(base=7, path=b"other"),)), Standing.THEIRS),
        (delegation.taken(MINE, 5, 4), Creator(MINE, 9, (pb.Place(base=8, path=b"name"),)), Standing.THEIRS),
    ],
)
def test_who_may_add_a_name_at_once(claim: pb.Delegation, adder: Creator | None, expected: Standing) -> None:
    assert delegation.standing(claim, adder, 7, b"name") is expected


def test_the_root_has_two_numbers() -> None:
    adder = Creator(MINE, 9, (pb.Place(path=b"name"),))
    assert delegation.standing(delegation.taken(MINE, 5, 4), adder, ROOT, b"name") is Standing.OURS


def test_who_may_claim() -> None:
    free, mine = pb.Delegation(), delegation.taken(MINE, 5, 4)
    assert delegation.may_take(free, MINE, 1, 1) and delegation.may_take(mine, MINE, 6, 1)
    assert not delegation.may_take(mine, OTHER, 6, 1) and not delegation.may_take(mine, MINE, 4, 1)
    delegation.recall(mine, 10)
    assert not delegation.may_take(mine, MINE, 6, 99)
    recalled = pb.Delegation(recalled_tick=10)
    assert not delegation.may_take(recalled, MINE, 6, 9 + QUIET_TICKS) and delegation.may_take(
        recalled, MINE, 6, 10 + QUIET_TICKS
    )


def test_only_what_is_recalled_ends_without_its_client() -> None:
    claim = delegation.taken(MINE, 5, 4)
    assert not delegation.may_end(claim, 100.0, 200.0)
    delegation.recall(claim, 10)
    assert not delegation.may_end(claim, 100.0, 100.0 + 0.9 * RECALL_S) and delegation.may_end(claim, 100.0, 101.0)


def test_what_is_left_of_a_claim() -> None:
    inode = pb.Inode(delegation=delegation.taken(MINE, 5, 4))
    assert DelegationHeld(7, MINE, 5).is_of(inode.delegation) and not DelegationHeld(7, MINE, 6).is_of(inode.delegation)
    delegation.end(inode)
    assert inode == pb.Inode()
    inode.delegation.CopyFrom(delegation.taken(MINE, 5, 4))
    delegation.recall(inode.delegation, 10)
    delegation.end(inode)
    assert inode == pb.Inode(delegation=pb.Delegation(recalled_tick=10))
