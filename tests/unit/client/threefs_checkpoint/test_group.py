from threefs_checkpoint.group import Group, SingleGroup

from tests.harness.ranks import each_rank


def test_one_process_is_a_group() -> None:
    group = SingleGroup()
    assert group.all_gather(b"x") == [b"x"] and (group.rank, group.world) == (0, 1)
    group.exchange({}, {})
    group.twin().close()


def test_rank_0_tells_all_others() -> None:
    def work(group: Group) -> list[bytes]:
        return [group.from_rank_0(b"" if group.rank else text) for text in (b"", b"x" * 5000)]

    assert each_rank(3, work) == [[b"", b"x" * 5000]] * 3
    assert SingleGroup().from_rank_0(b"x") == b"x"
