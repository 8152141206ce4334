"""Closing an etcd cluster to everybody without its password."""

import grpc

from threefs.env.clock import CLOCK, Clock
from threefs.errors import ThreefsError
from threefs.kv.etcd_members import error_of
from threefs.wire import etcd_pb2 as pb

#: etcd demands a user and a role of this name before it asks for passwords; that user may do everything.
ROOT = "root"
_CALL_S = 5.0
_PAUSE_S = 0.1
_ADD_USER = "/etcdserverpb.Auth/UserAdd"
_GRANT_ROLE = "/etcdserverpb.Auth/UserGrantRole"
_ENABLE = "/etcdserverpb.Auth/AuthEnable"


async def require_login(address: str, password: str, timeout_s: float, *, clock: Clock = CLOCK) -> None:
    """Let the cluster of this member answer only who logs in as ROOT. Harmless if it asks for passwords already.

    Raises Unavailable if a majority of its members does not answer in time.
    """
    deadline = clock.monotonic() + timeout_s
    steps = [
        (_ADD_USER, pb.EtcdAuthenticate(name=ROOT, password=password)),
        (_GRANT_ROLE, pb.EtcdGrant(user=ROOT, role=ROOT)),
        (_ENABLE, pb.EtcdEnable()),
    ]
    async with grpc.aio.insecure_channel(address) as channel:
        while steps:
            method, request = steps[0]
            call = channel.unary_unary(
                method,
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=pb.EtcdDone.FromString,
            )
            try:
                await call(request, timeout=_CALL_S, wait_for_ready=True)
            except grpc.aio.AioRpcError as error:
                text = error.details() or ""
                if "user name is empty" in text:
                    return  # it asks for passwords already
                if "already exists" not in text:
                    await _pause_or_fail(error_of(error, address), deadline, clock)
                    continue
            del steps[0]


async def _pause_or_fail(error: ThreefsError, deadline: float, clock: Clock) -> None:
    if clock.monotonic() >= deadline:
        raise error
    await clock.sleep(_PAUSE_S)
