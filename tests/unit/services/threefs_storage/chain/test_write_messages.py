"""Writes as messages."""

import pytest
from threefs_storage.chain.write_messages import WholeChunk, entries_of, identity_of
from threefs_storage.engine.chunk_record import Version
from threefs_storage.engine.exactly_once import Forgotten, OnceEntry

from threefs.errors import InvalidArgument
from threefs.ids import ChunkId, WriteIdentity
from threefs.wire import common_pb2
from threefs.wire import storage_pb2 as pb

IDENTITY = WriteIdentity(b"c" * 16, 3, 9)
VERSION = Version(7, 2, 100, 0xABC, None, 4096, b"crcs", identity=IDENTITY, stamp=5)


def test_r6_a_whole_chunk_carries_its_results() -> None:
    entries = (OnceEntry(b"a" * 16, 1, 2, 6, 50, 1, 4), OnceEntry(b"b" * 16, 1, 3, 5, 40, 2, 3))
    message = WholeChunk(ChunkId(1, 2), VERSION, entries, Forgotten(4, 1)).message(301, 8)
    assert (message.kind, message.target, message.chain_version, message.version) == (pb.REPLACE, 301, 8, 7)
    assert (message.chunk.inode, message.chunk.index) == (1, 2)
    assert entries_of(message) == entries and identity_of(message) == IDENTITY
    assert (message.forgotten_version, message.forgotten_stamp) == (4, 1)


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (pb.ChunkWrite(kind=pb.FORGET), "kind"),
        (pb.ChunkWrite(kind=pb.REPLACE), "clients cannot"),
        (pb.ChunkWrite(kind=pb.WRITE), "it has 0"),
        (pb.ChunkWrite(kind=pb.WRITE, identity=common_pb2.WriteIdentity(client=b"c" * 16)), "sequence number"),
    ],
)
def test_a_write_without_an_identity_is_refused(write: pb.ChunkWrite, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        identity_of(write)


def test_a_replace_may_have_no_identity() -> None:
    assert identity_of(pb.ChunkWrite(kind=pb.REPLACE, version=3)) is None


def test_entries_without_a_client_are_skipped() -> None:
    """A message of a future version may have others."""
    write = pb.ChunkWrite(entries=[pb.OnceEntry(identity=common_pb2.WriteIdentity(client=b"short"))])
    assert entries_of(write) == ()
