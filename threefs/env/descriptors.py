"""How many files and connections this process may have open."""

import resource

#: Kept for what is not a connection: stores, logs, the connections that this process makes.
_RESERVED = 512


def raise_limit() -> None:
    """Raise the soft limit of this process to its hard limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = 1 << 20 if hard == resource.RLIM_INFINITY else hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def most_connections(wanted: int) -> int:
    """The number of connections to allow, at most `wanted`. It leaves descriptors for the store of the same process,
    which fails when it cannot open its files."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if soft == resource.RLIM_INFINITY else max(1, min(wanted, max(soft - _RESERVED, soft // 2)))
