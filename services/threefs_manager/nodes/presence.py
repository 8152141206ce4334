"""Presence calls: each process keeps one open at the primary, so that the end of its connection shows its death."""

import asyncio

from threefs.env.clock import Clock
from threefs.env.net import Net
from threefs.errors import ConnectionRefused, NotFound, NotPrimary, ThreefsError, Unavailable

_CONNECT_S = 1.0
#: A dying process may still listen: its kernel closes its sockets one after the other.
_ATTEMPTS = 3
_PAUSE_S = 0.05


class PresenceCalls:
    """The presence calls that are open now."""

    def __init__(self) -> None:
        self._open: dict[asyncio.Future[None], tuple[int, int]] = {}

    async def wait_ended(self, node_id: int, incarnation: int) -> None:
        """Keep the call open until another incarnation or another primary makes it useless, and raise that. It never
        returns."""
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._open[ended] = (node_id, incarnation)
        try:
            await ended
        finally:
            del self._open[ended]

    def end_others(self, node_id: int, but: int) -> None:
        """End the calls of all incarnations of this node but that one."""
        for ended, (node, incarnation) in self._open.items():
            if node == node_id and incarnation != but:
                _fail(ended, NotFound(f"node {node_id} was started anew; this incarnation has to register again"))

    def end_all(self) -> None:
        """This manager is no longer the primary: processes keep their call at the new one."""
        for ended in self._open:
            _fail(ended, NotPrimary("this manager is no longer the primary"))


def _fail(ended: "asyncio.Future[None]", error: ThreefsError) -> None:
    if not ended.done():
        ended.set_exception(error)


async def nobody_listens(net: Net, address: str, clock: Clock) -> bool:
    """Whether the machine of `address` answers that no process listens there. False if it does not answer."""
    for attempt in range(_ATTEMPTS):
        if attempt:
            await clock.sleep(_PAUSE_S)
        try:
            stream = await net.connect(address, _CONNECT_S)
        except ConnectionRefused:
            return True
        except Unavailable:
            return False
        stream.close()
    return False
