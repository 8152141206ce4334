"""The limits of a connection: the sizes and the times that a peer may demand of this process."""

import dataclasses
from dataclasses import dataclass

from threefs.wire.common_pb2 import Hello


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one connection; those of the whole process come last.

    Each side states its limits in HELLO, and the caller keeps to those of its peer.

    A frame over a limit closes the connection with an error that names the limit. One call too many is answered with
    Overloaded.
    """

    body_bytes: int = 8 << 20
    payload_bytes: int = 128 << 20  # of one call
    calls: int = 4096  # in flight
    inflight_bytes: int = 256 << 20  # request payload received or being received
    hello_bytes: int = 4 << 10  # of a body, before it is known who the peer is
    queued_bytes: int = 64 << 20  # answers that wait for the peer to take them: its calls are not read beyond that
    hello_s: float = 10.0  # from connect to HELLO, at the server
    payload_s: float = 120.0  # from the begin of a request to the end of its payload, or less if its deadline is nearer
    grant_s: float = 60.0  # for which an answer waits for its GRANT, or less if its deadline is nearer
    stall_s: float = 30.0  # for which a peer may take nothing of what waits for it, or not go on with what it began
    idle_s: float = 900.0  # for which a connection may have no use
    connect_s: float = 3.0  # at the client, each for the connection and for HELLO: others wait for the same attempt
    # Of all peers together. A quarter of the memory is for calls that other services pass on: if those had to wait for
    # the end of clients' calls, both would wait for each other.
    process_bytes: int = 1 << 30  # of payload and answers
    # Of requests that a service is receiving, and of answers that a client is; those beyond wait in their senders.
    bodies_bytes: int = 128 << 20
    calls_bytes: int = 256 << 20  # of requests in flight, each with what it takes to keep account of it
    held_bytes: int = 256 << 20  # of answers that wait for a GRANT, from the begin of their read
    connections: int = 4096

    def before_hello(self) -> "Limits":
        """The limits for a peer that has not proven yet who it is."""
        return dataclasses.replace(self, body_bytes=min(self.body_bytes, self.hello_bytes), payload_bytes=0)

    def for_peer(self, hello: Hello) -> "Limits":
        """The limits for calls to a peer, from its HELLO. A limit that the peer does not state is the one of this
        side."""
        return dataclasses.replace(
            self,
            calls=hello.max_calls or self.calls,
            inflight_bytes=hello.max_inflight_bytes or self.inflight_bytes,
            payload_bytes=hello.max_payload_bytes or self.payload_bytes,
            body_bytes=hello.max_body_bytes or self.body_bytes,
        )
