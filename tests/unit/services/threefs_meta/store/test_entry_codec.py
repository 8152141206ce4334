"""Entries are stored as their messages are, whoever writes and reads them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from threefs_meta.store import entry_codec
from threefs_meta.store.entry_codec import Entry

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
    keys = [b"%d" % number for number in range(len(values))]
    found = entry_codec.decode_many(values, keys)
    assert [one for one in found if not isinstance(one, Corrupt)] == [(7, pb.FILE), None, (5, 0), (7, pb.FILE)]
    for number in (2, 3):
        with pytest.raises(Corrupt, match=f"b'{number}'"):
            entry_codec.decode(values[number] or b"", keys[number])
        assert f"b'{number}'" in str(found[number])
