import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from threefs_meta.store import entry_codec, entry_columns, keys
from threefs_meta.store.entry_codec import Entry
from threefs_meta.store.entry_columns import Columns

from threefs.errors import Corrupt
from threefs.kv import records
from threefs.wire import meta_pb2 as pb
from threefs.wire.records_pb2 import EntryRecord

ROWS = st.dictionaries(
    st.binary(min_size=1, max_size=255).filter(lambda name: b"\0" not in name),
    st.tuples(st.integers(1, 2**64 - 1), st.sampled_from(pb.InodeType.values()[1:])),
    max_size=20,
)


def pairs(rows: dict[bytes, tuple[int, pb.InodeType]]) -> list[tuple[bytes, bytes]]:
    return [(keys.entry(7, name), entry_codec.encode(Entry(*row))) for name, row in rows.items()]


@pytest.fixture(params=["one by one", "as a table"], autouse=True)
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_columns, "_MIN_VECTORIZED", {"one by one": 256, "as a table": 0}[request.param])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ROWS)
def test_as_one_by_one(rows: dict[bytes, tuple[int, pb.InodeType]]) -> None:
    found = entry_columns.of_entries(pairs(rows))
    assert found.names == b"".join(name + b"\0" for name in rows)
    assert found.inodes == b"".join(inode.to_bytes(8, "little") for inode, _ in rows.values())
    assert found.types == bytes(kind for _, kind in rows.values())


def test_other_forms() -> None:
    odd = records.encode(EntryRecord(inode=5))
    found = entry_columns.of_entries([*pairs({b"a": (1, pb.FILE)}), (keys.entry(7, b"b"), odd)])
    assert found == Columns(b"a\0b\0", (1).to_bytes(8, "little") + (5).to_bytes(8, "little"), bytes((pb.FILE, 0)))


def test_damage_is_found() -> None:
    good = pairs({b"%d" % number: (number, pb.FILE) for number in range(1, 10)})
    key, value = good[4]
    for place in range(8 * len(value)):
        damaged = bytearray(value)
        damaged[place // 8] ^= 1 << place % 8
        with pytest.raises(Corrupt, match="DENT"):
            entry_columns.of_entries([*good[:4], (key, bytes(damaged)), *good[5:]])
