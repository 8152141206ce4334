from threefs.rpc.send_stall import STALL_S, SendStall


def test_a_peer_that_takes_nothing_for_long_is_given_up() -> None:
    stall = SendStall()
    assert not stall.is_over(100, True, 1000.0)
    assert not stall.is_over(100, True, 1000.0 + STALL_S - 1)
    assert stall.is_over(100, True, 1000.0 + STALL_S)


def test_each_byte_that_it_takes_counts() -> None:
    stall = SendStall()
    assert not stall.is_over(100, True, 1000.0)
    assert not stall.is_over(101, True, 1000.0 + STALL_S)
    assert not stall.is_over(101, True, 1000.0 + 2 * STALL_S - 1)


def test_a_connection_without_anything_to_send_is_sound() -> None:
    stall = SendStall()
    assert not stall.is_over(100, True, 1000.0)
    assert not stall.is_over(100, False, 1000.0 + STALL_S)
    assert not stall.is_over(100, True, 1000.0 + STALL_S + 1)


def test_what_is_sent_after_a_pause_has_the_whole_time() -> None:
    stall = SendStall()
    assert not stall.is_over(100, False, 0.0)
    assert not stall.is_over(100, True, 10 * STALL_S)
    assert not stall.is_over(100, True, 11 * STALL_S - 1)
    assert stall.is_over(100, True, 11 * STALL_S)
