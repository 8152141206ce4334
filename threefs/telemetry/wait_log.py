"""Says once that calls wait for a service, and that they go on. A program that waits says nothing until it fails."""

from typing import Any

from threefs.telemetry.library_logging import LibraryLogger

#: Calls that are repeated for this long are worth a warning.
_SILENCE_S = 1.0
_INTERVAL_S = 30.0


class WaitLog:
    def __init__(self, log: LibraryLogger, *, waits: str, goes_on: str, interval_s: float = 0.0) -> None:
        """The two events, as they are logged. Two warnings are at least `interval_s` apart."""
        self._log = log
        self._waits = waits
        self._goes_on = goes_on
        self._interval_s = interval_s
        self._is_waiting = False  # and that was logged
        self._warned_at = float("-inf")

    def failed(self, error: Exception, began: float, now: float, timeout_s: float) -> None:
        """An attempt has failed of a call that began at that moment."""
        if now - began >= _SILENCE_S and not self._is_waiting and now - self._warned_at >= self._interval_s:
            self._is_waiting, self._warned_at = True, now
            self._log.warning(self._waits, error=str(error), timeout_s=timeout_s)

    def answered(self, **fields: Any) -> None:
        if self._is_waiting:
            self._is_waiting = False
            self._log.warning(self._goes_on, **fields)

    def attempted(self, error: Exception | None, began: float, now: float, deadline: float) -> None:
        """An attempt of a call has failed, or the call has come to its end. Other calls may go on waiting then."""
        if error is not None:
            self.failed(error, began, now, deadline - began)
        elif now - began >= _SILENCE_S:
            self.answered()


def chunk_waits(log: LibraryLogger, verb: str) -> WaitLog:
    """For calls of chunks. Chains fail one by one, and warn together."""
    waits = f"chunks cannot be {verb} now: calls are repeated until their timeout"
    return WaitLog(log, waits=waits, goes_on=f"chunks can be {verb} again", interval_s=_INTERVAL_S)
