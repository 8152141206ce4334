from threefs.kv import engine_api
from threefs.kv.etcd_members import MAX_OPERATIONS


def test_limits_are_those_of_every_engine_that_is_planned() -> None:
    """FoundationDB's limits are the tightest of the engines; etcd's 1.5 MiB request limit leaves room as well."""
    assert engine_api.MAX_KEY_BYTES <= 10_000
    assert engine_api.MAX_VALUE_BYTES <= 100_000
    assert engine_api.MAX_TRANSACTION_BYTES <= 1_500_000
    assert 2 * engine_api.MAX_TRANSACTION_KEYS <= MAX_OPERATIONS, "a removal is two operations of etcd"
    assert engine_api.MAX_TRANSACTION_SECONDS <= 5.0
