from typing import get_args

import pytest
from threefs_client import modes
from threefs_client.modes import BinaryMode, Mode, TextMode

from threefs.errors import InvalidArgument


def test_modes_mean_what_they_mean_for_local_files() -> None:
    assert modes.parse("rb") == Mode(True, False, False, False, False, False, text=False)
    assert modes.parse("r+b") == modes.parse("rb+") == Mode(True, True, False, False, False, False, text=False)
    assert modes.parse("w") == Mode(False, True, False, True, False, True, text=True)
    assert modes.parse("xb") == Mode(False, True, False, True, True, False, text=False)
    assert modes.parse("a+t") == Mode(True, True, True, True, False, False, text=True)
    assert [modes.parse(mode).display for mode in ("rb", "r+", "w+b", "ab", "xb")] == ["rb", "rb+", "wb+", "ab", "xb"]


@pytest.mark.parametrize("mode", ["", "b", "rw", "rr", "r++", "rbt", "rz", "U", 5])
def test_other_modes_are_refused(mode: str) -> None:
    with pytest.raises(InvalidArgument, match="mode"):
        modes.parse(mode)


def test_the_modes_that_type_checkers_know_are_binary_or_text() -> None:
    assert not any(modes.parse(mode).text for mode in get_args(BinaryMode))
    assert all(modes.parse(mode).text for mode in get_args(TextMode))
