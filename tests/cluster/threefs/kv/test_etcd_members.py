import asyncio

import grpc
import pytest

from tests.harness.clocks import SteppedClock
from tests.harness.etcd import EtcdCluster
from tests.harness.processes import free_port
from threefs.errors import (
    Corrupt,
    InvalidArgument,
    NoSpace,
    NotAuthorised,
    ThreefsError,
    Throttled,
    TooLarge,
    TooOld,
    Unavailable,
)
from threefs.kv.etcd_members import Members, error_of
from threefs.wire import etcd_pb2 as pb


def said(code: grpc.StatusCode, text: str) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), text, None)


@pytest.mark.parametrize(
    ("code", "text", "kind"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, "etcdserver: request is too large", TooLarge),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "grpc: received message larger than max (2 vs. 1)", TooLarge),
        (grpc.StatusCode.INVALID_ARGUMENT, "etcdserver: too many operations in txn request", TooLarge),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded", NoSpace),
        (grpc.StatusCode.OUT_OF_RANGE, "etcdserver: mvcc: required revision has been compacted", TooOld),
        (grpc.StatusCode.OUT_OF_RANGE, "etcdserver: mvcc: required revision is a future revision", Unavailable),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "etcdserver: too many requests", Throttled),
        (grpc.StatusCode.UNAVAILABLE, "etcdserver: no leader", Throttled),
        (grpc.StatusCode.UNAVAILABLE, "etcdserver: leader changed", Unavailable),
        (grpc.StatusCode.UNAVAILABLE, "Connection reset by peer", Unavailable),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "", Unavailable),
        (grpc.StatusCode.UNAUTHENTICATED, "etcdserver: invalid auth token", NotAuthorised),
        (grpc.StatusCode.PERMISSION_DENIED, "etcdserver: permission denied", NotAuthorised),
        (grpc.StatusCode.INVALID_ARGUMENT, "etcdserver: user name is empty", NotAuthorised),
        (grpc.StatusCode.INVALID_ARGUMENT, "etcdserver: revision of auth store is old", NotAuthorised),
        (grpc.StatusCode.UNKNOWN, "auth: revision in header is old", NotAuthorised),
        (grpc.StatusCode.INVALID_ARGUMENT, "etcdserver: key is not provided", InvalidArgument),
        (grpc.StatusCode.DATA_LOSS, "etcdserver: corrupt cluster", Corrupt),
        (grpc.StatusCode.UNIMPLEMENTED, "unknown service etcdserverpb.KV", ThreefsError),
    ],
)
def test_each_answer_has_its_error(code: grpc.StatusCode, text: str, kind: type[ThreefsError]) -> None:
    error = error_of(said(code, text), "host:1")
    assert type(error) is kind
    assert "host:1" in str(error) and (text or "DEADLINE") in str(error)


def test_a_member_that_is_not_there_is_passed_over(etcd: EtcdCluster) -> None:
    async def body() -> None:
        members = Members([f"127.0.0.1:{free_port()}", *etcd.addresses])
        put = pb.EtcdOperation(put=pb.EtcdPut(key=b"passed", value=b"over"))
        assert (await members.change(pb.EtcdTxn(success=[put]))).succeeded, "sent to nobody is not in doubt"
        await members.close()
        members = Members([f"127.0.0.1:{free_port()}", *etcd.addresses])
        assert (await members.read(pb.EtcdRange(key=b"passed"))).kvs[0].value == b"over"
        await members.close()

    asyncio.run(body())


def test_missing_members_are_reported_in_the_end() -> None:
    async def body() -> None:
        members = Members([f"127.0.0.1:{free_port()}"], clock=SteppedClock())
        with pytest.raises(Unavailable, match="127"):
            await members.read(pb.EtcdRange(key=b"a"))
        with pytest.raises(Throttled, match="no member"):
            await members.change(pb.EtcdTxn())
        await members.close()

    asyncio.run(body())
