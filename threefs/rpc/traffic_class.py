"""Traffic classes: what a connection is used for.

Calls of different classes never share a connection, so a resync that fills its connection does not hold up a write. The
caller names the class in HELLO, and both sides mark their packets with it. A server counts each class, and makes its
background work yield to the others.
"""

import enum
from dataclasses import dataclass, fields

from threefs.env.packet_marks import MAX_DSCP, PacketMark
from threefs.errors import InvalidSettings


class TrafficClass(enum.IntEnum):
    """The numbers are those on the wire. A peer that names none, or one that is not known here, sends data."""

    DATA = 0  # reads and writes of clients
    REPLICATION = 1  # writes and version queries between the members of a chain
    METADATA = 2  # names, attributes, locks, routing
    BACKGROUND = 3  # resync, repair, comparison, backup: nobody waits for them


#: SO_PRIORITY. Linux's default discipline sends 6 first, and 2 only if nothing else is there.
_PRIORITIES = {
    TrafficClass.DATA: 0,
    TrafficClass.REPLICATION: 4,
    TrafficClass.METADATA: 6,
    TrafficClass.BACKGROUND: 2,
}


@dataclass(frozen=True, slots=True)
class Dscp:
    """The code point of each class. Clients wait for all members of a chain, so replication goes before data. The
    defaults are those of RFC 4594 for transactions (AF21), bulk transfers (AF11) and multimedia (AF31), and of RFC 8622
    for what may use only what is left (LE)."""

    data: int = 10  # AF11
    replication: int = 18  # AF21
    metadata: int = 26  # AF31
    background: int = 1  # LE

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if type(value) is not int or not 0 <= value <= MAX_DSCP:
                raise InvalidSettings(f"dscp.{field.name} must be a whole number from 0 to {MAX_DSCP}, not {value!r}")

    def mark(self, traffic: TrafficClass) -> PacketMark:
        return PacketMark(getattr(self, traffic.name.lower()), _PRIORITIES[traffic])


DEFAULT_DSCP = Dscp()


def of_number(number: int) -> TrafficClass:
    """The class that a peer names."""
    try:
        return TrafficClass(number)
    except ValueError:
        return TrafficClass.DATA
