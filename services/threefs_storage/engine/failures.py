"""What a store fails with: which failures pass, and which of several counts."""

from threefs.errors import Corrupt, NoSpace, ThreefsError, Unavailable
from threefs.kv.rocksdb_store import tells_of_disk


def is_exhaustion(error: ThreefsError | None) -> bool:
    """Whether this process had no descriptors or no memory left, or another process has the store. That says nothing of
    the disk, and passes."""
    return isinstance(error, Unavailable) and not tells_of_disk(error)


def outranks(error: ThreefsError, other: ThreefsError) -> bool:
    """Whether it counts although the other one was met before: a failed disk is worse than a damaged table, that one
    than a table that only has to be opened again, and a full disk is the least."""
    return _rank(error) > _rank(other)


def _rank(error: ThreefsError) -> int:
    if isinstance(error, NoSpace):
        return 0
    if is_exhaustion(error):
        return 1
    return 2 if isinstance(error, Corrupt) else 3
