"""How many rows a request has, before it is parsed."""

import pytest

from threefs.rpc import rows
from threefs.wire import storage_pb2 as pb


def test_a_column_of_packed_numbers_is_one_field_whatever_the_numbers_are() -> None:
    body = pb.WriteRequest(writes=[pb.ChunkWrite(pieces=[10, 98] * 1000)] * 3).SerializeToString()
    assert rows.most_rows(body, rows.row_tags(pb.WriteRequest)) >= 6000
    assert rows.count_fields(pb.WriteRequest, body, 6) == 6


def test_fields_of_all_types_are_counted_at_any_depth() -> None:
    entry = pb.OnceEntry(version=1 << 63, checksum=7)
    write = pb.ChunkWrite(target=300, checksum=5, trace=b"\x0a" * 200, entries=[entry] * 4)
    write.chunk.inode = 1 << 40  # fixed, of 8 bytes
    body = pb.WriteRequest(writes=[write], answer_after_ms=5).SerializeToString()
    fields = 2 + 3 + 2 + 4 + 8  # of the request, the write, its chunk, its entries, within them
    assert (
        rows.count_fields(pb.WriteRequest, body, fields) == fields
        and rows.count_fields(pb.WriteRequest, body, fields - 1) is None
    )


def test_an_unknown_field_is_one_field() -> None:
    assert rows.count_fields(pb.WriteRequest, b"\xfa\x07\x04\x0a\x00\x0a\x00", 9) == 1


@pytest.mark.parametrize(
    "body",
    [
        b"\x0a",  # the length is missing
        b"\x0a\x05\x08",  # longer than the body
        b"\x0a\x02\x0a\x05\x08\x01",  # longer than the message around it
        b"\x80" * (8 << 20),  # a number without an end
        b"\x0b\x0c",  # a group
    ],
    ids=["no length", "cut", "overlap", "endless", "group"],
)
def test_a_broken_body_has_no_count(body: bytes) -> None:
    assert rows.count_fields(pb.WriteRequest, body, 100) is None
