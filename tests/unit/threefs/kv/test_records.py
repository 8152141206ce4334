import struct

import pytest

from threefs.checksums import crc32c
from threefs.errors import Corrupt
from threefs.kv.records import bodies, decode, encode, encode_body
from threefs.wire import manager_pb2 as pb

NODE = pb.Node(node_id=7, kind=pb.STORAGE, domain="d", address="h:1", incarnation=2**64 - 1)


def test_a_record_comes_back_as_it_was() -> None:
    assert decode(encode(NODE), pb.Node, b"k") == NODE
    assert decode(encode(pb.Node()), pb.Node, b"k") == pb.Node()


def test_every_flipped_bit_is_found() -> None:
    value = encode(NODE)
    for place in range(8 * len(value)):
        damaged = bytearray(value)
        damaged[place // 8] ^= 1 << place % 8
        with pytest.raises(Corrupt, match="the-key"):
            decode(bytes(damaged), pb.Node, b"the-key")


def test_every_cut_is_found() -> None:
    value = encode(NODE)
    for length in range(len(value)):
        with pytest.raises(Corrupt):
            decode(value[:length], pb.Node, b"k")


def checked(form: int, body: bytes) -> bytes:
    return struct.pack("<BI", form, crc32c(bytes((form,)) + body)) + body


def test_what_is_no_message_is_corrupt_though_its_checksum_is_right() -> None:
    assert decode(checked(1, NODE.SerializeToString()), pb.Node, b"k") == NODE
    with pytest.raises(Corrupt, match="cannot be parsed"):
        decode(checked(1, b"\xff"), pb.Node, b"k")


def test_the_format_of_a_later_version_is_named() -> None:
    with pytest.raises(Corrupt, match="has format 2; this version of threefs reads format 1"):
        decode(checked(2, b""), pb.Node, b"k")


def test_many_are_believed_as_each_alone() -> None:
    value = encode_body(b"content")
    damaged = [value[:-1], b"\x02" + value[1:], b"", value + b"1"]
    found = bodies([value, None, *damaged, value], [b"%d" % number for number in range(7)])
    assert [found[number] for number in (0, 1, 6)] == [b"content", None, b"content"]
    for number, one in enumerate(found[2:6], 2):
        assert isinstance(one, Corrupt) and f"b'{number}'" in str(one)
