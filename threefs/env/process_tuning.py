"""Settings of a long-lived process: its limit of open files, and the pauses of Python's garbage collector."""

import gc
import resource

#: Descriptors that are kept for what is not an accepted connection: stores, logs, connections to other services.
_RESERVED_DESCRIPTORS = 512
#: One descriptor in so many is for connections to the control port.
_CONTROL_SHARE = 8


def raise_descriptor_limit() -> None:
    """Raise the soft limit of open files to the hard limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft = 1 << 20 if hard == resource.RLIM_INFINITY else hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def max_connections(wanted: int) -> int:
    """The number of connections to accept, at most `wanted`. It leaves descriptors for the control port, and for the
    store of the same process, which fails when it cannot open its files."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return wanted
    return max(1, min(wanted, max(soft - soft // _CONTROL_SHARE - _RESERVED_DESCRIPTORS, soft // 2)))


def max_control_connections(wanted: int) -> int:
    """The same for the control port of the process."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if soft == resource.RLIM_INFINITY else max(1, min(wanted, soft // _CONTROL_SHARE))


def freeze_objects() -> None:
    """Exempt the objects that exist now from garbage collection. To be called once a program has started.

    Modules, classes and the state of libraries are tens of thousands of objects that stay. Each full collection would
    visit them all, free nothing, and delay answers by 10 to 30 ms.
    """
    gc.collect()
    gc.freeze()
