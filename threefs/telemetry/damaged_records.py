"""Damaged records that work in the background meets. It goes on without them, and tells of each once, although it comes
to them again and again."""

import structlog

from threefs.bounded_dict import BoundedDict
from threefs.errors import Corrupt

#: That are remembered. More are told of again.
_MAX_KNOWN = 4096

_LOG = structlog.get_logger()


class DamagedRecords:
    """Of one process."""

    def __init__(self, hint: str = "") -> None:
        """`hint` says what to do."""
        self._known = BoundedDict[tuple[bytes, str], None](_MAX_KNOWN)
        self._hint = hint

    def pass_over(self, key: bytes, error: Corrupt, effect: str) -> None:
        """`effect`: what is, or is not, done because of it. `key` is of the record that the work was for; the error may
        name another one, which that needs."""
        if (key, effect) not in self._known:
            self._known.put((key, effect), None)
            _LOG.error(effect, key=key.hex(), error=str(error), hint=self._hint)
