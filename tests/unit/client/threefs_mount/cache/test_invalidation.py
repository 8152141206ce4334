from threefs_mount.cache.invalidation import MAX_RECORDS, InvalidationLog


def test_only_invalidations_since_a_generation() -> None:
    touches = InvalidationLog()
    touches.record(1)
    touches.record(2)
    mark = touches.generation
    assert touches.changed_since(mark) == set()
    touches.record((7, b"a"))
    touches.record(1)
    assert touches.changed_since(mark) == {(7, b"a"), 1} and touches.changed_since(touches.generation) == set()
    assert touches.changed_since(0) == {1, 2, (7, b"a")}


def test_what_is_behind_too_much_is_not_known() -> None:
    touches = InvalidationLog()
    touches.record(0)
    mark = touches.generation
    for number in range(1, MAX_RECORDS + 1):
        touches.record(number)
    assert touches.changed_since(mark) == set(range(1, MAX_RECORDS + 1)) and touches.changed_since(mark - 1) is None
    touches.record(0)
    assert touches.changed_since(mark) is None and len(touches.changed_since(mark + 1) or ()) == MAX_RECORDS
