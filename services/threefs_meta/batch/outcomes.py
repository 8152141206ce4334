"""What came of each of many changes, as the pieces of a BatchReply: put together from what is serialized already,
and the same in the reply and in the record that keeps it.
"""

from threefs.errors import ThreefsError
from threefs.rpc.preencoded import head, number
from threefs.wire import meta_pb2 as pb

_MAX_MESSAGE_CHARS = 1024
#: Of BatchReply.results and of Changed.request, then of the reply in Changed, as protobuf writes them.
_RESULT_TAG, _REQUEST_TAG = b"\x0a", b"\x20"
_REPLY_TAGS = {"create": b"\x1a", "remove": b"\x3a", "rename": b"\x32", "close": b"\x32", "sync": b"\x32"}


def succeeded(kind: str, request: int, reply: bytes) -> bytes:
    """`kind` is that of the change, `reply` what it was answered with, `request` the number of its identity."""
    inner = head(_REPLY_TAGS[kind], len(reply)) + reply + number(_REQUEST_TAG, request)
    return head(_RESULT_TAG, len(inner)) + inner


def retry_alone(request: int) -> bytes:
    return serialized(pb.Changed(retry_alone=True, request=request))


def failed(error: ThreefsError) -> bytes:
    return serialized(pb.Changed(code=error.code, message=error.message[:_MAX_MESSAGE_CHARS]))


def serialized(result: pb.Changed) -> bytes:
    """One that was made before."""
    body = result.SerializeToString()
    return head(_RESULT_TAG, len(body)) + body
