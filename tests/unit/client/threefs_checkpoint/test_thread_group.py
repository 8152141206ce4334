import pytest
from threefs_checkpoint.group import Group
from threefs_checkpoint.thread_group import ThreadGroup

from tests.harness.ranks import each_rank, outcomes
from threefs.errors import Unavailable


def test_every_rank_gets_every_message_in_order() -> None:
    def work(group: Group) -> list[list[bytes]]:
        return [group.all_gather(b"%d.%d" % (group.rank, turn)) for turn in range(50)]

    expected = [[b"%d.%d" % (rank, turn) for rank in range(4)] for turn in range(50)]
    assert each_rank(4, work) == [expected] * 4


def test_buffers_go_from_rank_to_rank() -> None:
    def work(group: Group) -> list[bytes]:
        others = [rank for rank in range(group.world) if rank != group.rank]
        outgoing = {other: [memoryview(b"%d>%d" % (group.rank, other)), memoryview(b"!")] for other in others}
        incoming = {other: [memoryview(bytearray(3)), memoryview(bytearray(1))] for other in others}
        group.exchange(outgoing, incoming)
        return [bytes(view) for other in others for view in incoming[other]]

    found = each_rank(3, work)
    assert found[1] == [b"0>1", b"!", b"2>1", b"!"]


def test_a_twin_has_messages_of_its_own() -> None:
    def work(group: Group) -> tuple[list[bytes], list[bytes]]:
        twin = group.twin()
        if group.rank:
            return group.all_gather(b"a"), twin.all_gather(b"b")
        return group.all_gather(b"a"), twin.all_gather(b"b")

    assert each_rank(2, work) == [([b"a"] * 2, [b"b"] * 2)] * 2


def test_who_waits_for_a_rank_that_is_gone_is_told() -> None:
    def work(group: Group) -> None:
        if group.rank == 1:
            raise KeyError
        group.all_gather(b"")

    with pytest.raises(KeyError):
        each_rank(1, lambda group: {}[group.rank])  # type: ignore[index]
    with pytest.raises((KeyError, Unavailable)):
        each_rank(3, work)


def test_a_wait_ends_after_its_time() -> None:
    first, _ = ThreadGroup.all_of(2, 0.01)
    with pytest.raises(Unavailable, match="rank 0 waits"):
        first.all_gather(b"")
    assert isinstance(outcomes(1, lambda group: group.all_gather(b""))[0], list)
