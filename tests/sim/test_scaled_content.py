"""Histories of large content."""

import pytest

from tests.sim.scaled_content import expand, shrink


@pytest.mark.parametrize("grain", [1, 2, 109, 512])
def test_what_is_expanded_shrinks_to_itself(grain: int) -> None:
    history = bytes(range(200)) + b"\0\0<7>"
    content = expand(history, grain)
    assert len(content) == len(history) * grain and content[grain * 3 : grain * 4] == b"\3" * grain
    assert shrink(content, grain) == history


def test_a_torn_grain_is_reported_with_its_place() -> None:
    content = bytearray(expand(b"abc", 100))
    content[199] = 0
    with pytest.raises(AssertionError, match="bytes 100 to 200"):
        shrink(bytes(content), 100)
