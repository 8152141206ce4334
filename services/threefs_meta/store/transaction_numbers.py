"""Counts the inode numbers that a transaction takes and stores no inode under, so that the number of inodes is right.

An attempt that is not committed stores nothing, nor does a change of a batch that is rolled back. Their numbers are
not given out again: a number that two inodes have would be worse than a wrong count.
"""

from threefs.errors import MaybeCommitted, ThreefsError


class TransactionNumbers:
    """Of one transaction, over all its attempts."""

    def __init__(self) -> None:
        self.unused = 0
        self._taken = 0  # by the present attempt, without those of changes that were rolled back
        self._rolled_back = 0
        self._saved = 0  # taken when the last savepoint was set
        self._unknown = 0  # taken by attempts of unknown outcome

    def take(self) -> None:
        self._taken += 1

    def savepoint(self) -> None:
        self._saved = self._taken

    def rollback(self) -> None:
        self._rolled_back += self._taken - self._saved
        self._taken = self._saved

    def found_results(self) -> None:
        """Of an earlier attempt, perhaps one of unknown outcome."""
        self._unknown = 0

    def failed(self, error: ThreefsError) -> None:
        """An attempt was not committed, or it is not known whether it was."""
        if isinstance(error, MaybeCommitted):
            self._unknown += self._taken
            self._taken = 0
        self._end_attempt(self._taken)

    def ended(self, error: Exception | None) -> None:
        """The last attempt was committed, or the transaction has failed."""
        # Had an attempt of unknown outcome been committed, this one had found that, and taken nothing.
        if self._taken or (error is not None and not isinstance(error, MaybeCommitted)):
            self.unused += self._unknown
        self._end_attempt(0 if error is None else self._taken)

    def _end_attempt(self, unused: int) -> None:
        self.unused += self._rolled_back + unused
        self._taken = self._rolled_back = self._saved = 0
