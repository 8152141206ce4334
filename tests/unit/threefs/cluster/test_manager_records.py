from threefs.cluster.manager_records import CHAIN, record_key


def test_records_of_a_kind_are_ordered_by_number() -> None:
    keys = [record_key(CHAIN, number) for number in (1, 2, 255, 256, 1 << 31)]
    assert keys == sorted(keys) and all(key.startswith(b"CHAI|") for key in keys)
