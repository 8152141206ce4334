"""Entries are stored as their messages are, whoever writes and reads them."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from threefs_meta.store import entry_codec, keys
from threefs_meta.store.entry_codec import Entry, EntryColumns

from threefs.errors import Corrupt
from threefs.kv import records
from threefs.wire import meta_pb2 as pb
from threefs.wire.records_pb2 import EntryRecord

numbers = st.integers(1, 2**64 - 1)
kinds = st.sampled_from(pb.InodeType.values()[1:])


@given(numbers, kinds)
def test_as_the_message(inode: int, kind: pb.InodeType) -> None:
    record = EntryRecord(inode=inode, type=kind)
    assert entry_codec.encode(Entry(inode, kind)) == records.encode(record)
    assert entry_codec.decode(records.encode(record), b"k") == Entry(inode, kind)


@given(st.binary(max_size=14))
def test_any_bytes_are_what_the_message_says_or_corrupt(body: bytes) -> None:
    value = records.encode_body(body)
    try:
        record = records.decode(value, EntryRecord, b"k")
    except Corrupt:
        with pytest.raises(Corrupt):
            entry_codec.decode(value, b"k")
    else:
        assert entry_codec.decode(value, b"k") == Entry(record.inode, record.type)


def test_other_forms_of_the_message() -> None:
    for body in (EntryRecord(inode=5), EntryRecord(type=pb.FILE), EntryRecord()):
        assert entry_codec.decode(records.encode(body), b"k") == Entry(body.inode, body.type)
    swapped = EntryRecord(type=pb.FILE).SerializeToString() + EntryRecord(inode=5).SerializeToString()
    assert entry_codec.decode(records.encode_body(swapped), b"k") == Entry(5, pb.FILE)


def test_damage_is_found() -> None:
    value = entry_codec.encode(Entry(7, pb.FILE))
    for place in range(8 * len(value)):
        damaged = bytearray(value)
        damaged[place // 8] ^= 1 << place % 8
        with pytest.raises(Corrupt, match="the-key"):
            entry_codec.decode(bytes(damaged), b"the-key")


def test_many_are_decoded_as_each_alone() -> None:
    usual = entry_codec.encode(Entry(7, pb.FILE))
    values = [usual, None, usual[:-1] + b"\x02", b"", records.encode(EntryRecord(inode=5)), usual]
    rows = [b"%d" % number for number in range(len(values))]
    found = entry_codec.decode_many(values, rows)
    assert [one for one in found if not isinstance(one, Corrupt)] == [(7, pb.FILE), None, (5, 0), (7, pb.FILE)]
    for number in (2, 3):
        with pytest.raises(Corrupt, match=f"b'{number}'"):
            entry_codec.decode(values[number] or b"", rows[number])
        assert f"b'{number}'" in str(found[number])


ROWS = st.dictionaries(
    st.binary(min_size=1, max_size=255).filter(lambda name: b"\0" not in name),
    st.tuples(st.integers(1, 2**64 - 1), st.sampled_from(pb.InodeType.values()[1:])),
    max_size=20,
)


def pairs(rows: dict[bytes, tuple[int, pb.InodeType]]) -> list[tuple[bytes, bytes]]:
    return [(keys.entry(7, name), entry_codec.encode(Entry(*row))) for name, row in rows.items()]


@pytest.fixture(params=["one by one", "as a table"])
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_codec, "_MIN_VECTORIZED", {"one by one": 256, "as a table": 0}[request.param])


@pytest.mark.usefixtures("_way")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ROWS)
def test_as_one_by_one(rows: dict[bytes, tuple[int, pb.InodeType]]) -> None:
    found = entry_codec.of_entries(pairs(rows))
    assert found.names == b"".join(name + b"\0" for name in rows)
    assert found.inodes == b"".join(inode.to_bytes(8, "little") for inode, _ in rows.values())
    assert found.types == bytes(kind for _, kind in rows.values())


@pytest.mark.usefixtures("_way")
def test_other_forms() -> None:
    odd = records.encode(EntryRecord(inode=5))
    found = entry_codec.of_entries([*pairs({b"a": (1, pb.FILE)}), (keys.entry(7, b"b"), odd)])
    assert found == EntryColumns(b"a\0b\0", (1).to_bytes(8, "little") + (5).to_bytes(8, "little"), bytes((pb.FILE, 0)))


@pytest.mark.usefixtures("_way")
def test_damage_is_found_among_many() -> None:
    good = pairs({b"%d" % number: (number, pb.FILE) for number in range(1, 10)})
    key, value = good[4]
    for place in range(8 * len(value)):
        damaged = bytearray(value)
        damaged[place // 8] ^= 1 << place % 8
        with pytest.raises(Corrupt, match="DENT"):
            entry_codec.of_entries([*good[:4], (key, bytes(damaged)), *good[5:]])
