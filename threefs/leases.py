"""Leases, and other promises of a length that several programs must know alike.

T, the lease time of a cluster, is set when the cluster is made (`lease_s` in the settings of the manager) and comes
with the routing. A node that is silent for T is dead. The other lengths follow from T, or are fixed here, so no two
programs can disagree about them.
"""


def target_lease_s(lease_s: float) -> float:
    """How long a target's lease lasts, from the sending of the heartbeat that it was granted for. `lease_s` is T.

    Half of T is the margin: the lease has ended when the manager takes the silent node for dead (R9).
    """
    return lease_s / 2


def target_unheard_s(lease_s: float) -> float:
    """For how long after the end of its lease a target's chain has not gone on without it. `lease_s` is T.

    A quarter of T is left as the margin: it is put out for its silence after T.
    """
    return lease_s / 4


# ---- A client's lease: the meta services keep its locks, write sessions and open files until it was silent for so
# long. It is longer than T because nothing waits for a dead client but what it held itself, while a live client that
# loses its lease loses work: the lease must outlast the failover of a manager and of a meta service, and a pause of a
# loaded machine.

_TS_PER_CLIENT_LEASE = 3
#: Small values of T are for quick failover of storage; a client's process may be a notebook or a busy trainer.
MIN_CLIENT_LEASE_S = 15.0
RENEWALS_PER_LEASE = 3
#: The meta services measure it in ticks of their logical clock (`threefs_meta/lease/logical_clock.py`). Between the
#: stamps of its begin and its end is one tick more, because the first tick had begun before the lease did.
TICKS_PER_LEASE = 6
LEASE_TICKS = TICKS_PER_LEASE + 1


def client_lease_s(lease_s: float) -> float:
    """How long a client's lease lasts. `lease_s` is T."""
    return max(_TS_PER_CLIENT_LEASE * lease_s, MIN_CLIENT_LEASE_S)


def client_reliance_s(lease_s: float) -> float:
    """How long a client relies on its lease after it has sent a renewal; then it asks. `lease_s` is T.

    A tick shorter than the lease: the clock of the service that counts the ticks may run faster than the client's.
    """
    return client_lease_s(lease_s) * (TICKS_PER_LEASE - 1) / TICKS_PER_LEASE


# ---- A delegation: the right of one mount to know all names of a directory. The answer to each name that the mount
# adds there says whether the delegation stands, and the mount relies on that for DELEGATION_S from when it *sent* the
# request: the transaction that saw the delegation began later. Before another client adds a name, the meta service
# writes that the delegation is recalled, which commits after every transaction that saw it standing. A meta service
# ends the delegation DELEGATION_RECALL_S after it has seen the recall, by its own clock: then the mount relies on it no
# longer.

DELEGATION_S = 0.25
#: Longer by more than any two clocks differ in their speed.
DELEGATION_RECALL_S = 0.3


# ---- Repeated changes of the metadata: a repeat gets the stored result of the first attempt for REPLAYS_KEPT_S. A
# later repeat would make the change once more. A client sends the last one within MAX_OPERATION_S. After that it may
# lie in a suspended client until the service closes the connection, which was silent for so long (`idle_s` in
# threefs/rpc/limits.py, 15 minutes). The rest is for clocks of different speeds.

REPLAYS_KEPT_S = 45 * 60.0
MAX_OPERATION_S = 20 * 60.0
