from threefs_checkpoint.group import SingleGroup


def test_one_process_is_a_group() -> None:
    group = SingleGroup()
    assert group.all_gather(b"x") == [b"x"] and (group.rank, group.world) == (0, 1)
    group.exchange({}, {})
    group.twin().close()
