"""How many files and connections this process may have open."""

import resource

#: Kept for what is not a connection: stores, logs, the connections that this process makes.
_RESERVED = 512


def raise_limit() -> None:
    """To the most that this process may have without asking anybody."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = 1 << 20 if hard == resource.RLIM_INFINITY else hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def most_connections(wanted: int) -> int:
    """So many that a store of the same process can still open its files: when those cannot be had it fails for good."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if soft == resource.RLIM_INFINITY else max(1, min(wanted, max(soft - _RESERVED, soft // 2)))
