"""Whoever serves a store of a cluster now."""

from threefs_client import AsyncFileSystem, addresses

from threefs.cluster.manager_client import FramedManager, Managers
from threefs.errors import Unavailable
from threefs.rpc.methods import Method, Rep, Req


class MetaServices:
    """Those that the manager knows at the moment of a call."""

    def __init__(self, fs: AsyncFileSystem) -> None:
        self._fs = fs

    async def call(self, method: Method[Req, Rep], request: Req, *, timeout_s: float) -> Rep:
        link = self._fs.context
        found = link.cluster.routing.meta_addresses()
        if not found:
            raise Unavailable("no meta service is known to the manager now")
        services = Managers([FramedManager(link.peers, one) for one in found])
        return await services.call(method, request, timeout_s=timeout_s)


def managers(fs: AsyncFileSystem, url: str) -> Managers:
    return Managers([FramedManager(fs.context.peers, address) for address in addresses.parse(url)])
