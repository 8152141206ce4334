"""Events of several processes in one row."""

from threefs_cli.chunk_copies import Copy
from threefs_cli.chunk_events import describe, line, merged

from threefs.wire import manager_pb2 as pb
from threefs.wire import storage_pb2


def test_the_oldest_comes_first_and_each_says_who_and_what() -> None:
    event = storage_pb2.ChunkEvent
    reply = storage_pb2.InspectChunkReply(
        events=[
            event(what="staged", ago_ms=3000, version=7),
            event(what="forwarding", ago_ms=2500, version=7, to_target=201),
            event(what="committed", ago_ms=1000, version=7),
            event(what="pondered", ago_ms=10),
        ]
    )
    member = pb.ChainMember(target_id=101, state=pb.SERVING)
    silent = Copy(pb.ChainMember(target_id=201), None, "no answer")
    chain = pb.Chain(version=4, members=[member, pb.ChainMember(target_id=201, state=pb.OFFLINE, leaving=True)])
    told = merged([Copy(member, reply), silent], [pb.ChainEvent(chain=chain, ago_ms=2000)])
    assert [line(one) for one in told] == [
        "     3.0 s ago  target 101 has version 7 on its disk",
        "     2.5 s ago  target 101 forwards version 7 to target 201",
        "     2.0 s ago  the chain became version 4: 101 serving, 201 offline (leaving)",
        "     1.0 s ago  target 101 has committed version 7",
        "     0.0 s ago  target 101 pondered",
    ]
    assert describe(told[2]) == {"ago_ms": 2000, "target_id": None, "what": "chain", "text": told[2].text}
