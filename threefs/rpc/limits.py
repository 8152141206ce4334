"""What a peer may make large, and how long it may keep us waiting."""

import dataclasses
from dataclasses import dataclass

from threefs.wire.common_pb2 import Hello


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one connection. Each side tells the other its own in HELLO, and who calls keeps to those of the other.

    A frame over a limit closes the connection with an error that says which; a call too many is answered with
    Overloaded.
    """

    body_bytes: int = 8 << 20
    payload_bytes: int = 128 << 20  # of one call
    calls: int = 4096  # in flight
    inflight_bytes: int = 256 << 20  # request payload received or being received
    hello_s: float = 10.0  # from connect to HELLO, at the server
    connect_s: float = 3.0  # at the client, each for the connection and for HELLO: others wait for the same attempt

    def told(self, hello: Hello) -> "Limits":
        """Those that calls of this side keep to, from what the peer takes. A peer that does not say takes as much as
        this side does."""
        return dataclasses.replace(
            self,
            calls=hello.most_calls or self.calls,
            inflight_bytes=hello.most_inflight_bytes or self.inflight_bytes,
            payload_bytes=hello.most_payload_bytes or self.payload_bytes,
            body_bytes=hello.most_body_bytes or self.body_bytes,
        )
