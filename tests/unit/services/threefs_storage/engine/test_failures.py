import errno
import itertools
import os

import pytest
from threefs_storage.engine.failures import is_exhaustion, outranks

from threefs.errors import Corrupt, DiskFailed, NoSpace, Unavailable
from threefs.kv.rocksdb_store import error_of

EXHAUSTED = error_of(OSError(f"While open a file for appending: /d/7.log: {os.strerror(errno.EMFILE)}"), "the table")


def test_a_worse_failure_replaces_another_one() -> None:
    ranks = [NoSpace("full"), EXHAUSTED, Corrupt("damaged"), DiskFailed("input/output error")]
    for one, other in itertools.product(ranks, ranks):
        assert outranks(one, other) == (ranks.index(one) > ranks.index(other))


@pytest.mark.parametrize(
    ("said", "passes"),
    [
        (f"While open a file for random read: /d/7.sst: {os.strerror(errno.ENFILE)}", True),
        (f"While appending to file: /d/7.log: {os.strerror(errno.ENOMEM)}", True),
        (f"While fdatasync: /d/7.log: {os.strerror(errno.ENOMEM)}", False),
        (f"While appending to file: /d/7.log: {os.strerror(errno.EIO)}", False),
    ],
)
def test_what_a_process_lacks_passes_except_in_a_sync(said: str, passes: bool) -> None:
    """What was to reach the disk may be forgotten then: the next sync would not tell."""
    error = error_of(OSError(said), "the table")
    assert isinstance(error, Unavailable) and is_exhaustion(error) == passes


def test_no_failure_and_another_kind_are_no_exhaustion() -> None:
    assert not is_exhaustion(None) and not is_exhaustion(Corrupt(os.strerror(errno.EMFILE)))
