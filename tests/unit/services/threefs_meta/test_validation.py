"""What requests carry besides paths."""

import pytest
from threefs_meta.validation import check_mode, check_session

from threefs.errors import InvalidArgument


def test_modes() -> None:
    for mode in (0, 0o644, 0o7777):
        check_mode(mode)
    with pytest.raises(InvalidArgument, match="0o10000"):
        check_mode(0o10000)


def test_sessions() -> None:
    check_session(b"")
    check_session(b"s" * 16)
    for session in (b"s", b"s" * 15, b"s" * 17):
        with pytest.raises(InvalidArgument, match="16 bytes"):
            check_session(session)
