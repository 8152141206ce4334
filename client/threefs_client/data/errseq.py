"""Which write errors each open handle must still report: Linux calls this errseq. No I/O happens here.

Written bytes are sent later, by a call of any handle or in the background. So an error belongs to the file, and each
handle that was open at the time reports it once, by the first `fsync` through it. A `close` of one of its descriptors
reports it as well, but does not count: a forked child closes the descriptors that it has inherited, often without
checking. Reads, unlocks and all other calls leave the error alone. An error that no `fsync` has reported is also
reported by the next handle that is opened.
"""


class Errseq:
    """The write errors of one file."""

    def __init__(self) -> None:
        self._count = 0  # of errors so far
        self._error: Exception | None = None  # the newest one
        self._reported = True  # an fsync has reported the newest error

    def record(self, error: Exception) -> None:
        """Written bytes were lost."""
        self._count += 1
        self._error = error
        self._reported = False

    def sample(self) -> int:
        """The count of errors that a handle opened now need not report."""
        return self._count if self._reported else self._count - 1

    @property
    def current(self) -> int:
        """The count so far: `check` of it finds only later errors."""
        return self._count

    def check(self, seen: int) -> Exception | None:
        """The newest error after the count `seen`, for `close`. It does not count as reported."""
        return self._error if seen != self._count else None

    def check_and_advance(self, seen: int) -> tuple[int, Exception | None]:
        """The same for `fsync`: (the count that its handle has seen then, the error). The error counts as reported."""
        error = self.check(seen)
        self._reported = self._reported or error is not None
        return self._count, error
