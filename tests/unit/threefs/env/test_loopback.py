import pytest

from threefs.env.loopback import raw_rate


@pytest.mark.parametrize("unix", [False, True])
def test_both_kinds_of_socket_carry_something(unix: bool) -> None:
    assert raw_rate(unix=unix, seconds=0.05) > 1 << 20
