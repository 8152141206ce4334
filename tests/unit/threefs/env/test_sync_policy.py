from threefs.env.sync_policy import QUICK_S, STALL_S, Pace


def after(*seconds: float) -> Pace:
    pace = Pace()
    for each in seconds:
        pace.took(each)
    return pace


def until_on_loop(pace: Pace, seconds: float) -> int:
    for count in range(10_000):
        if pace.on_loop:
            return count
        pace.took(seconds)
    raise AssertionError("it never is")


def test_a_log_of_which_nothing_is_known_is_not_synced_on_the_loop() -> None:
    assert not Pace().on_loop
    assert not after(0.0).on_loop


def test_a_quick_log_is_synced_on_the_loop_soon() -> None:
    assert 1 < until_on_loop(Pace(), QUICK_S / 4) < 50


def test_a_log_that_is_hardly_ever_quick_never_is() -> None:
    assert not after(*[2 * QUICK_S] * 10_000).on_loop
    assert not after(*[0.0, *[3 * QUICK_S] * 4] * 1000).on_loop


def test_slow_syncs_among_quick_ones_are_borne() -> None:
    assert after(*[QUICK_S / 4] * 1000, 40 * QUICK_S).on_loop
    assert after(*[*[4 * QUICK_S] * 2, QUICK_S / 4] * 1000).on_loop


def test_a_log_that_becomes_slow_leaves_the_loop_soon_and_returns_when_it_is_quick_again() -> None:
    pace = after(*[QUICK_S / 4] * 1000)
    count = 0
    while pace.on_loop:
        pace.took(10 * QUICK_S)
        count += 1
    assert count < 30
    for _ in range(1000):
        pace.took(10 * QUICK_S)
    assert until_on_loop(pace, QUICK_S / 4) < 20


def test_after_a_stall_the_loop_is_spared_for_long() -> None:
    pace = after(*[QUICK_S / 4] * 1000, STALL_S)
    assert until_on_loop(pace, 0.0) == 256


def test_stalls_in_the_thread_count_as_well() -> None:
    pace = after(*[QUICK_S / 4] * 1000, STALL_S, *[0.0] * 200, STALL_S)
    assert until_on_loop(pace, 0.0) == 256
