"""What a long-lived process sets for itself: its limit of open files, and the pauses of Python's garbage collector."""

import gc
import resource

#: Descriptors that are kept for what is not an accepted connection: stores, logs, connections to other services.
_RESERVED_DESCRIPTORS = 512


def raise_descriptor_limit() -> None:
    """Raise the soft limit of open files to the hard limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft = 1 << 20 if hard == resource.RLIM_INFINITY else hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def max_connections(wanted: int) -> int:
    """The number of connections to accept, at most `wanted`. It leaves descriptors for the store of the same process,
    which fails when it cannot open its files."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return wanted
    return max(1, min(wanted, max(soft - _RESERVED_DESCRIPTORS, soft // 2)))


def freeze_objects() -> None:
    """Exempt the objects that exist now from garbage collection. To be called once a program has started.

    Modules, classes and the state of libraries are tens of thousands of objects that stay. Each full collection would
    visit them all, free nothing, and delay answers by 10 to 30 ms.
    """
    gc.collect()
    gc.freeze()
