from threefs_mount.cache.readdirplus_policy import MAX_PROGRAMS, ReaddirplusPolicy


def listings(habits: ReaddirplusPolicy, program: int = 1) -> int:
    """How many come with attributes before the next one without."""
    count = 0
    while habits.wants_attributes(program):
        count += 1
    return count


def test_a_program_without_lookups_gets_names_alone_after_two_listings() -> None:
    habits = ReaddirplusPolicy()
    assert [habits.wants_attributes(1) for _ in range(50)] == [True] * 2 + [False] * 48


def test_a_program_that_looks_up_again_gets_attributes_for_longer_each_time() -> None:
    habits = ReaddirplusPolicy()
    counts = []
    for _ in range(5):
        counts.append(listings(habits))
        habits.record_lookup(1)
    assert counts == [2, 15, 60, 240, 255]


def test_a_program_that_has_stopped_to_look_up_starts_again() -> None:
    habits = ReaddirplusPolicy()
    for _ in range(3):
        listings(habits)
        habits.record_lookup(1)
    assert listings(habits) == 240 and listings(habits) == 0
    habits.record_lookup(1)
    assert listings(habits) == 15


def test_several_looks_count_as_one() -> None:
    habits = ReaddirplusPolicy()
    listings(habits)
    for _ in range(5):
        habits.record_lookup(1)
    assert listings(habits) == 15


def test_each_program_is_judged_by_itself() -> None:
    habits = ReaddirplusPolicy()
    listings(habits, 1)
    listings(habits, 2)
    habits.record_lookup(2)
    habits.record_lookup(3)
    assert not habits.wants_attributes(1) and habits.wants_attributes(2) and habits.wants_attributes(3)


def test_programs_that_listed_long_ago_are_forgotten() -> None:
    habits = ReaddirplusPolicy()
    listings(habits, 0)
    for program in range(1, MAX_PROGRAMS + 1):
        habits.wants_attributes(program)
    assert len(habits._programs) == MAX_PROGRAMS and habits.wants_attributes(0)
