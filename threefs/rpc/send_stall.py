"""Noticing that the peer of a connection takes nothing any more.

A process that hangs keeps its connections open, and what waits for it keeps its memory, also that of calls which have
ended: their frames may have begun. TCP ends such a connection after a while (TCP_USER_TIMEOUT), a UNIX socket never
does.
"""

#: As long as TCP waits.
STALL_S = 60.0


class SendStall:
    """Of one connection. Decisions only, no I/O."""

    __slots__ = ("_sent_bytes", "_since")

    def __init__(self) -> None:
        self._sent_bytes = -1  # in total, when the peer last took something
        self._since = 0.0  # when that was noticed

    def is_over(self, sent_bytes: int, sending: bool, now: float) -> bool:
        """To be called now and then while calls wait: with the bytes that the kernel has taken in total, and whether
        more wait for it. True: for so long it has taken none of them that the connection should end."""
        if not sending or sent_bytes != self._sent_bytes:
            self._sent_bytes = sent_bytes if sending else -1  # what is sent later has the whole time again
            self._since = now
            return False
        return now - self._since >= STALL_S
