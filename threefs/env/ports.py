"""Ports of services that are told none.

A service keeps the port that it has found, because others know it by then. So it takes none of those that the kernel
gives to sockets that name none: while the service is stopped, any connection of another program may get that one.
"""

import secrets
from collections.abc import Iterator
from pathlib import Path

ANY = 0  # the kernel chooses
_KEPT = range(22_000, 32_000)
_GIVEN_BY_THE_KERNEL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_TRIES = 16


def candidates() -> Iterator[int]:
    """Ports to try in turn, each of which may be taken; the last ones the kernel chooses."""
    if _lowest_of_the_kernel() >= _KEPT.stop:
        for _ in range(_TRIES):
            yield secrets.choice(_KEPT)
    for _ in range(_TRIES):
        yield ANY


def _lowest_of_the_kernel() -> int:
    try:
        return int(_GIVEN_BY_THE_KERNEL.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return ANY
