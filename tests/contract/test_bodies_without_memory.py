"""Requests whose bodies find no memory at the service."""

import pytest

from tests.harness.rpc import Served
from threefs.errors import ThreefsError
from threefs.rpc import frame_stream
from threefs.rpc.methods import READ
from threefs.wire import storage_pb2 as pb


async def test_one_leaves_its_share_of_the_room_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them took it for ever, until nobody's body was received any more."""

    def fail(size: int) -> bytearray:
        raise MemoryError

    async with Served() as (server, peers, address):
        connection = await peers.connect(address, 5)
        with monkeypatch.context() as patched:
            patched.setattr(frame_stream, "bytearray", fail, raising=False)
            with pytest.raises(ThreefsError):
                await connection.call(READ, pb.ReadRequest(offset=[1 << 31] * 100_000), timeout_s=5)
        assert server.bodies.bytes == 0
