"""Calls of an administrator to the managers, from a host of his own."""

import asyncio

from tests.harness.simulated.clock import SimClock
from tests.harness.simulated.loop import Process
from tests.sim.net import SimNet
from tests.sim.world import World
from threefs.errors import NotAuthorised, Retry, ThreefsError
from threefs.rpc.connection_pool import ConnectionPool
from threefs.rpc.handshake import Identity
from threefs.rpc.methods import REGISTER, Method, Rep, Req
from threefs.wire import manager_pb2 as pb

_HOST = "admin"
_CALL_S = 5.0
_PAUSE_S = 0.2


async def administer(world: World, name: str, method: Method[Req, Rep], request: Req) -> Rep:
    """Call the managers until they answer. Raises what no attempt can mend."""
    process = Process(world.loop, name, _HOST)

    async def call() -> Rep:
        peers = _connections(world, process)
        while True:
            try:
                return await world.callers(peers).call(method, request, timeout_s=_CALL_S)
            except NotAuthorised as error:  # somebody pretends to be a manager
                world.tell(f"the administrator is not let in: {error}")
            except ThreefsError as error:
                if error.retry is Retry.NEVER:
                    raise
            await asyncio.sleep(_PAUSE_S)

    return await process.start(call())


def hear_again(world: World, registration: pb.RegisterRequest) -> None:
    """A registration that was sent long ago reaches the managers now."""
    process = Process(world.loop, "stray", _HOST)

    async def call() -> None:
        try:
            await world.callers(_connections(world, process)).call(REGISTER, registration, timeout_s=_CALL_S)
        except ThreefsError as error:
            world.tell(f"a late registration of node {registration.node_id} is refused: {error}")

    process.start(call())


def moves_left(world: World) -> bool:
    """Whether some member of a chain has not got yet to where it is to be."""
    primary = world.primary()
    controller = world.managers[primary]._controller if primary is not None else None
    if controller is None:
        return True
    return not controller.move_executor.is_settled


def _connections(world: World, process: Process) -> ConnectionPool:
    identity = Identity("", "0" * 32, world.size.key, process.name)
    return ConnectionPool(SimNet(world.fabric, process), identity, clock=SimClock(world.loop))
