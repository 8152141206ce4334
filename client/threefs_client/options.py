"""Options of a connection."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from threefs.env.host_slots import MAX_SLOTS
from threefs.errors import InvalidArgument
from threefs.leases import MAX_OPERATION_S
from threefs.rpc.traffic_class import DEFAULT_DSCP, Dscp
from threefs.telemetry import tracing
from threefs_client import keyring

_BUFFERS = ("write_buffer_bytes", "max_dirty_bytes", "read_ahead_bytes", "max_read_ahead_bytes")


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a connection. They are pickled with a file system object, except the token."""

    timeout_s: float = 60.0  # of one operation, with all its attempts
    connect_timeout_s: float = 10.0
    attempt_timeout_s: float = 10.0  # of one attempt; then the next replica or address is tried
    request_bytes: int = 8 << 20  # payload of one request to a storage process
    in_flight_bytes: int = 64 << 20  # payload in flight, for reads and for writes each
    receive_senders: int = 32  # storage processes that may send to the programs of this host at a time; 0: any number
    receive_bytes: int = 128 << 20  # that they may send at a time
    write_buffer_bytes: int = 32 << 20  # of each file that are not durable yet: half of it gathers while half is sent
    max_dirty_bytes: int = 64 << 20  # of all files together that are not durable yet
    read_ahead_bytes: int = 8 << 20  # of each file that is read in sequence; less than 4096: none
    max_read_ahead_bytes: int = 64 << 20  # of all files together
    noatime: bool = False  # reads do not change access times (else as with relatime: after a change, and once a day)
    verify: bool = True  # check the checksums of reads in the client, too
    unix_sockets: bool = True  # to services on this host; else TCP, as to those of other hosts
    trace_endpoint: str = (
        ""  # OTLP/HTTP of a collector of OpenTelemetry, "http://host:4318"; empty: as $THREEFS_TRACE says
    )
    trace_sample: float = 1.0  # share of writes that are traced
    dscp: Dscp = DEFAULT_DSCP  # how packets are marked, by traffic class
    key_file: str = ""  # has the key of the cluster; by default `keyring` finds it
    token: str = field(default="", repr=False)  # the key itself

    def __post_init__(self) -> None:
        for name in ("timeout_s", "connect_timeout_s", "attempt_timeout_s"):
            if not getattr(self, name) > 0:
                raise InvalidArgument(f"option {name} must be more than 0 seconds, not {getattr(self, name)!r}")
        if self.timeout_s > MAX_OPERATION_S:  # or a repeated change might be applied twice
            raise InvalidArgument(
                f"option timeout_s is at most {MAX_OPERATION_S:g} seconds, as the cluster keeps the results of "
                f"changes only so long, not {self.timeout_s!r}"
            )
        if type(self.receive_senders) is not int or not 0 <= self.receive_senders <= MAX_SLOTS:
            raise InvalidArgument(
                f"option receive_senders must be a whole number from 0 to {MAX_SLOTS}, not {self.receive_senders!r}"
            )
        if self.trace_endpoint:
            tracing.check(self.trace_endpoint, self.trace_sample)
        for name in ("request_bytes", "in_flight_bytes", "receive_bytes", *_BUFFERS):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise InvalidArgument(f"option {name} must be a whole number of at least 1 byte, not {value!r}")

    def key(self, managers: Sequence[str]) -> tuple[str, str]:
        """(the key of the cluster with these managers, where it was found); both may be empty. Raises
        InvalidSettings."""
        return keyring.find(managers, token=self.token, key_file=self.key_file)

    def without_token(self) -> dict[str, Any]:
        """Keyword arguments for another process, which finds the key by itself."""
        return {name: getattr(self, name) for name in self.__slots__ if name != "token"}


def make(**chosen: Any) -> Options:
    """Raises InvalidArgument for an option that does not exist."""
    unknown = sorted(set(chosen) - set(Options.__slots__))
    if unknown:
        raise InvalidArgument(f"unknown option {unknown[0]!r}; known are {', '.join(sorted(Options.__slots__))}")
    return Options(**chosen)
