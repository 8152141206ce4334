from threefs.rpc.preencoded import PreencodedReply, head, number
from threefs.wire import meta_pb2 as pb


def test_it_is_what_its_pieces_are() -> None:
    pieces = [pb.ListReply(entries=[pb.Entry(name=name)]) for name in (b"a", b"b")] + [pb.ListReply(more=True)]
    reply = PreencodedReply(pb.ListReply, (piece.SerializeToString() for piece in pieces))
    whole = pb.ListReply(entries=[pb.Entry(name=b"a"), pb.Entry(name=b"b")], more=True)
    assert reply.parsed() == whole
    assert pb.ListReply.FromString(reply.SerializeToString()) == whole


def test_the_head_of_a_field_says_how_long_it_is() -> None:
    for length in (0, 1, 127, 128, 16383, 16384, 1 << 21):
        name = b"n" * length
        assert pb.Entry.FromString(head(b"\x0a", length) + name).name == name


def test_a_number_is_a_field() -> None:
    for value in (0, 1, 127, 128, 1 << 40, (1 << 64) - 1):
        assert pb.Mutation.FromString(number(b"\x10", value)).request == value
