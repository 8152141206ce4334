from threefs_mount.cache.invalidation import MOST_TOUCHED, InvalidationLog


def test_only_what_was_touched_since_a_mark() -> None:
    touches = InvalidationLog()
    touches.note(1)
    touches.note(2)
    mark = touches.mark
    assert touches.since(mark) == set()
    touches.note((7, b"a"))
    touches.note(1)
    assert touches.since(mark) == {(7, b"a"), 1} and touches.since(touches.mark) == set()
    assert touches.since(0) == {1, 2, (7, b"a")}


def test_what_is_behind_too_much_is_not_known() -> None:
    touches = InvalidationLog()
    touches.note(0)
    mark = touches.mark
    for number in range(1, MOST_TOUCHED + 1):
        touches.note(number)
    assert touches.since(mark) == set(range(1, MOST_TOUCHED + 1)) and touches.since(mark - 1) is None
    touches.note(0)
    assert touches.since(mark) is None and len(touches.since(mark + 1) or ()) == MOST_TOUCHED
