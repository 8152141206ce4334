"""Checks of what requests carry besides paths. All raise InvalidArgument."""

from threefs.errors import InvalidArgument
from threefs_meta.store import keys

MAX_PERMISSIONS = 0o7777


def check_mode(mode: int) -> None:
    if mode > MAX_PERMISSIONS:
        raise InvalidArgument(f"permission bits go from 0 to {MAX_PERMISSIONS:#o}, not {mode:#o}")


def check_access(wanted: int) -> None:
    if wanted > 7:
        raise InvalidArgument(f"what is wanted is made of 4 (read), 2 (write), 1 (execute), not {wanted}")


def check_session(session: bytes) -> None:
    """Empty means none."""
    if session and len(session) != keys.SESSION_BYTES:
        raise InvalidArgument(f"a write session is named by {keys.SESSION_BYTES} bytes, not {len(session)}")
