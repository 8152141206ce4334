from threefs_mount.habit import Habit


def test_nobody_looks_until_somebody_did() -> None:
    habit = Habit()
    assert not any(habit.wants_attributes() for _ in range(100))


def test_after_a_look_one_listing_in_sixteen_is_without_attributes() -> None:
    habit = Habit()
    habit.looked()
    assert [habit.wants_attributes() for _ in range(17)] == [True] * 15 + [False] * 2
    habit.looked()
    assert habit.wants_attributes()
