from threefs.env.sync_policy import QUICK_S, STALL_S, SyncPolicy


def after(*seconds: float) -> SyncPolicy:
    sync_policy = SyncPolicy()
    for each in seconds:
        sync_policy.record(each)
    return sync_policy


def until_on_loop(sync_policy: SyncPolicy, seconds: float) -> int:
    for count in range(10_000):
        if sync_policy.on_loop:
            return count
        sync_policy.record(seconds)
    raise AssertionError("it never is")


def test_a_log_of_which_nothing_is_known_is_not_synced_on_the_loop() -> None:
    assert not SyncPolicy().on_loop
    assert not after(0.0).on_loop


def test_a_quick_log_is_synced_on_the_loop_soon() -> None:
    assert 1 < until_on_loop(SyncPolicy(), QUICK_S / 4) < 50


def test_a_log_that_is_hardly_ever_quick_never_is() -> None:
    assert not after(*[2 * QUICK_S] * 10_000).on_loop
    assert not after(*[0.0, *[3 * QUICK_S] * 4] * 1000).on_loop


def test_slow_syncs_among_quick_ones_are_borne() -> None:
    assert after(*[QUICK_S / 4] * 1000, 40 * QUICK_S).on_loop
    assert after(*[*[4 * QUICK_S] * 2, QUICK_S / 4] * 1000).on_loop


def test_a_log_that_becomes_slow_leaves_the_loop_soon_and_returns_when_it_is_quick_again() -> None:
    sync_policy = after(*[QUICK_S / 4] * 1000)
    count = 0
    while sync_policy.on_loop:
        sync_policy.record(10 * QUICK_S)
        count += 1
    assert count < 30
    for _ in range(1000):
        sync_policy.record(10 * QUICK_S)
    assert until_on_loop(sync_policy, QUICK_S / 4) < 20


def test_after_a_stall_the_loop_is_spared_for_long() -> None:
    sync_policy = after(*[QUICK_S / 4] * 1000, STALL_S)
    assert until_on_loop(sync_policy, 0.0) == 256


def test_stalls_in_the_thread_count_as_well() -> None:
    sync_policy = after(*[QUICK_S / 4] * 1000, STALL_S, *[0.0] * 200, STALL_S)
    assert until_on_loop(sync_policy, 0.0) == 256
