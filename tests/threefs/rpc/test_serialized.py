from threefs.rpc.serialized import Serialized
from threefs.wire import meta_pb2 as pb


def test_it_is_what_its_pieces_are() -> None:
    pieces = [pb.ListReply(entries=[pb.Entry(name=name)]) for name in (b"a", b"b")] + [pb.ListReply(more=True)]
    reply = Serialized(pb.ListReply, (piece.SerializeToString() for piece in pieces))
    whole = pb.ListReply(entries=[pb.Entry(name=b"a"), pb.Entry(name=b"b")], more=True)
    assert reply.parsed() == whole
    assert pb.ListReply.FromString(reply.SerializeToString()) == whole
