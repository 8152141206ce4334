"""Outcomes are what a BatchReply of messages would be."""

from threefs_meta.batch import outcomes

from threefs.errors import NotFound
from threefs.wire import meta_pb2 as pb


def test_they_are_pieces_of_the_reply() -> None:
    create = pb.CreateReply(inode=pb.Inode(inode=5, name=b"n" * 300), created=True)
    file = pb.InodeReply(inode=pb.Inode(inode=6))
    told = pb.InodeReply(claim=8).SerializeToString()
    pieces = [
        outcomes.succeeded("create", 1 << 40, create.SerializeToString() + told),
        *(outcomes.succeeded(kind, 7, file.SerializeToString()) for kind in ("rename", "close", "sync")),
        outcomes.succeeded("remove", 0, pb.RemoveReply(changed_ns=9).SerializeToString()),
        outcomes.retry_alone(10),
        outcomes.failed(NotFound("x" * 3000)),
        outcomes.serialized(pb.Changed(file=file, request=11)),
    ]
    create.claim = 8
    assert pb.BatchReply.FromString(b"".join(pieces)) == pb.BatchReply(
        results=[
            pb.Changed(create=create, request=1 << 40),
            *[pb.Changed(file=file, request=7)] * 3,
            pb.Changed(remove=pb.RemoveReply(changed_ns=9)),
            pb.Changed(retry_alone=True, request=10),
            pb.Changed(code=NotFound.code, message="x" * 1024),
            pb.Changed(file=file, request=11),
        ]
    )
