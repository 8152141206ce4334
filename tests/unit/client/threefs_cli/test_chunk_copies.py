"""What the copies of a chunk are called."""

from threefs_cli.chunk_copies import Copy, Found, Place, copy_text, describe
from threefs_cli.cluster_state import ClusterState

from threefs.ids import ChunkId
from threefs.wire import manager_pb2 as pb
from threefs.wire import storage_pb2

FIRST = storage_pb2.ChunkVersion(version=1, chain_version=3, length=5, checksum=0xAB)
SECOND = storage_pb2.ChunkVersion(version=2, chain_version=3, length=5, checksum=0xCD)
REMOVED = storage_pb2.ChunkVersion(version=3, removed=True)
LOST = storage_pb2.ChunkVersion(version=3, lost=True)


def copy(reply: storage_pb2.InspectChunkReply | None, state: "pb.PublicState" = pb.SERVING) -> Copy:
    return Copy(pb.ChainMember(target_id=101, state=state), reply, "" if reply is not None else "it is silent")


def found(*copies: Copy) -> Found:
    chain = pb.Chain(chain_id=1, version=3, members=[copy.member for copy in copies])
    state = ClusterState(pb.GetStatusReply(chains=[chain]), pb.Routing())
    return Found(Place("/a", 0), 5, ChunkId(9, 0), 1 << 20, chain, state, list(copies))


def test_a_copy_is_one_line() -> None:
    reply = storage_pb2.InspectChunkReply
    assert copy_text(copy(reply())) == "nothing"
    assert copy_text(copy(reply(committed=FIRST))) == "version 1, 5 bytes, CRC32C 000000ab"
    assert copy_text(copy(reply(committed=FIRST, pending=SECOND, damaged=True))).endswith(
        "; pending: version 2, 5 bytes, CRC32C 000000cd; DAMAGED"
    )
    assert "early: version 2" in copy_text(copy(reply(pending=SECOND, early=True)))
    assert copy_text(copy(reply(committed=REMOVED))) == "version 3, removed"
    assert copy_text(copy(reply(committed=LOST))) == "version 3, LOST"
    assert copy_text(copy(reply(unreadable=True, damaged=True))) == "its record cannot be read"
    assert copy_text(copy(None)) == "no answer: it is silent"


def test_serving_copies_agree_but_for_a_version_on_its_way() -> None:
    first, second = (storage_pb2.InspectChunkReply(committed=version) for version in (FIRST, SECOND))
    assert found(copy(first), copy(first)).agree
    assert not found(copy(first), copy(second)).agree
    assert not found(copy(first), copy(None)).agree
    assert found(copy(first), copy(second, pb.OFFLINE), copy(None, pb.OFFLINE)).agree
    on_its_way = storage_pb2.InspectChunkReply(committed=FIRST, pending=SECOND)
    assert found(copy(on_its_way), copy(second)).agree
    described = describe(found(copy(on_its_way), copy(None)))
    assert [member["error"] for member in described["members"]] == [None, "it is silent"]
    assert described["members"][0]["pending"]["early"] is False and "members" not in described["chain"]
