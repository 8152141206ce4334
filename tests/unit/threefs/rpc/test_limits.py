from threefs.rpc import handshake
from threefs.rpc.handshake import Identity
from threefs.rpc.limits import Limits
from threefs.wire.common_pb2 import Hello


def test_every_bound_has_a_sensible_default() -> None:
    limits = Limits()
    assert limits.payload_bytes >= 64 << 20, "the largest chunk fits into one call"
    assert limits.inflight_bytes >= limits.payload_bytes
    assert limits.body_bytes < limits.payload_bytes
    assert limits.calls > 0 and limits.hello_s > 0


def test_calls_keep_to_what_the_peer_takes() -> None:
    mine = Limits()
    for_peer = mine.for_peer(handshake.hello(Identity("", ""), Limits(calls=7, payload_bytes=9)))
    assert (for_peer.calls, for_peer.payload_bytes, for_peer.inflight_bytes) == (7, 9, mine.inflight_bytes)
    assert mine.for_peer(Hello()) == mine, "of a peer that does not say"
