"""What a peer may make large, and how long it may keep us waiting."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one connection. What goes over one closes the connection with an error that says which."""

    body_bytes: int = 8 << 20
    payload_bytes: int = 128 << 20  # of one call
    calls: int = 4096  # in flight
    inflight_bytes: int = 512 << 20  # request payload received or being received
    hello_s: float = 10.0  # from connect to HELLO, at the server
    connect_s: float = 3.0  # at the client, each for the connection and for HELLO: others wait for the same attempt
