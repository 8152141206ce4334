"""How long a client may be silent before the meta services take for ended what it holds: sessions, locks, open files.

The length follows from T of the cluster, so no two programs can disagree about it. It is longer than T because nothing
waits for a dead client but what it held itself, while a live one that loses its lease loses work: it must outlast the
failover of a manager and of a meta service, and a pause of a loaded machine.
"""

LEASES_PER_T = 3
#: Small values of T are for quick failover of storage; a client's process may be a notebook or a busy trainer.
MIN_CLIENT_LEASE_S = 15.0
RENEWALS = 3  # per lease
#: The meta services count ticks (`threefs_meta/lease/logical_clock.py`): so many per lease ...
TICKS_PER_LEASE = 6
#: ... and one more between the stamps of its begin and its end, as the first of them had begun before it.
LEASE_TICKS = TICKS_PER_LEASE + 1

#: A change that is sent again returns its first result for so long after it was made. Who asks stops before that:
#: later it would be made once more.
REPLAYS_KEPT_S = 30 * 60.0
MAX_OPERATION_S = 20 * 60.0


def client_lease_s(lease_s: float) -> float:
    """`lease_s` is T."""
    return max(LEASES_PER_T * lease_s, MIN_CLIENT_LEASE_S)
