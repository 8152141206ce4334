import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from threefs_backup.services import MetaServices, managers
from threefs_client import AsyncFileSystem

from threefs.errors import Unavailable
from threefs.rpc.methods import READ_LOG, Method
from threefs.wire import backup_pb2 as pb


class Peers:
    def __init__(self) -> None:
        self.asked: list[str] = []
        self.gone: set[str] = set()

    async def call(self, address: str, method: Method[Any, Any], request: Any, *, timeout_s: float) -> Any:
        self.asked.append(address)
        if address in self.gone:
            raise Unavailable("nobody there")
        return pb.ReadLogReply()


def client(peers: Peers, known: list[str]) -> AsyncFileSystem:
    routing = SimpleNamespace(meta_addresses=lambda: tuple(known))
    context = SimpleNamespace(peers=peers, cluster=SimpleNamespace(routing=routing))
    return cast(AsyncFileSystem, SimpleNamespace(context=context))


def test_a_meta_service_that_is_gone_is_passed_over_and_a_new_one_is_found() -> None:
    async def main() -> None:
        peers, known = Peers(), ["a:1", "b:1"]
        services = MetaServices(client(peers, known))
        peers.gone = {"a:1"}
        await services.call(READ_LOG, pb.ReadLogRequest(), timeout_s=1)
        assert peers.asked == ["a:1", "b:1"]
        known[:] = ["c:1"]
        await services.call(READ_LOG, pb.ReadLogRequest(), timeout_s=1)
        assert peers.asked[-1] == "c:1"
        known.clear()
        with pytest.raises(Unavailable, match="no meta service"):
            await services.call(READ_LOG, pb.ReadLogRequest(), timeout_s=1)

    asyncio.run(main())


def test_all_managers_are_asked() -> None:
    async def main() -> None:
        peers = Peers()
        peers.gone = {"m:1"}
        await managers(client(peers, []), "threefs://m:1,n:1").call(READ_LOG, pb.ReadLogRequest(), timeout_s=1)
        assert peers.asked == ["m:1", "n:1"]

    asyncio.run(main())
