"""Which errors of writing an open handle has not been told of yet: what Linux calls errseq. No I/O happens here.

What programs write is stored later, by whoever comes first: so an error belongs to the file, and each handle that was
open then is told of it once, by the first `fsync` through it. A `close` of one of its descriptors tells of it too, but
takes nothing away: a forked child closes what it has inherited, often without looking. Reads, unlocks and all other
calls leave it alone. An error that no `fsync` has told of is told to the next one who opens the file, too.
"""


class Errseq:
    """Of one file."""

    def __init__(self) -> None:
        self._count = 0  # of errors so far
        self._error: Exception | None = None  # the last one
        self._seen = True  # to anybody, by an fsync

    def record(self, error: Exception) -> None:
        """Something that was written is lost."""
        self._count += 1
        self._error = error
        self._seen = False

    def sample(self) -> int:
        """What a handle that is opened now need not be told of."""
        return self._count if self._seen else self._count - 1

    @property
    def current(self) -> int:
        """For `since`: only errors that come from now on."""
        return self._count

    def check(self, seen: int) -> Exception | None:
        """The newest error after `seen`, for `close`. Nobody counts as told."""
        return self._error if seen != self._count else None

    def check_and_advance(self, seen: int) -> tuple[int, Exception | None]:
        """The same for `fsync`, and what its handle has seen then."""
        error = self.check(seen)
        self._seen = self._seen or error is not None
        return self._count, error
