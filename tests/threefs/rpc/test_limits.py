from threefs.rpc.limits import Limits


def test_every_bound_has_a_sensible_default() -> None:
    limits = Limits()
    assert limits.payload_bytes >= 64 << 20, "the largest chunk fits into one call"
    assert limits.inflight_bytes >= limits.payload_bytes
    assert limits.body_bytes < limits.payload_bytes
    assert limits.calls > 0 and limits.hello_s > 0
