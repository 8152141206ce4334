"""Processes that do not know the key of the cluster (I21).

AT intruder HOST FOR     one of them calls the services of the host, behind proofs that are none
AT impostor HOST FOR     the process of the host is killed, and one of them listens in its place
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.harness.seeded_random import SeededRandom
from tests.harness.simulated.clock import SimClock
from tests.harness.simulated.loop import Process
from tests.sim.net import SimNet, SimStream
from tests.sim.world import PORT, World
from threefs.errors import ThreefsError
from threefs.rpc import frames, handshake, methods
from threefs.rpc.handshake import Identity
from threefs.rpc.limits import Limits
from threefs.rpc.methods import Method
from threefs.rpc.server import Server

KINDS = ("intruder", "impostor")
LASTS_S = (0.5, 3.0)
_FROM = "x1"
_WRONG = "a key of another cluster"
_LISTENS_S = 0.5
_LIMITS = Limits()
_METHODS: list[Method[Any, Any]] = [one for one in vars(methods).values() if isinstance(one, Method)]


class Intruders:
    def __init__(self, world: World) -> None:
        self.violations: list[str] = []
        self.refused = 0  # conversations that brought nothing
        self._world = world
        self._random = SeededRandom(world.seed, "intruders")
        self._made = 0
        self._pretended: set[str] = set()  # hosts where one of them listens: they would believe each other

    def begin(self, what: str, host: str) -> Callable[[], Any] | None:
        """How to end it; None where there is no key, or nothing to strike."""
        world = self._world
        if not world.size.key or host in self._pretended:
            return None
        if what == "impostor" and not world.processes[host].running:
            return None
        self._made += 1
        if what == "intruder":
            process = Process(world.loop, f"intruder.{self._made}", _FROM)
            process.start(self._intrude(process, host))
            return process.kill
        world.kill(host)
        self._pretended.add(host)
        impostor = Process(world.loop, f"impostor.{self._made}", host)
        impostor.start(self._pretend(impostor, host))

        def gone() -> None:
            impostor.kill()
            self._pretended.discard(host)
            if host not in world.fabric.down:
                world.start(host)

        return gone

    def _identity(self, *, key: bool) -> Identity:
        return Identity("", self._random.token(16).hex(), _WRONG if key else "", "intruder")

    async def _intrude(self, process: Process, host: str) -> None:
        net = SimNet(self._world.fabric, process)
        while True:
            for way in (_without_key, _with_another_key, _with_the_proof_of_the_server):
                try:
                    stream = await net.connect(f"{host}:{PORT}", 1.0)
                except ThreefsError:
                    await asyncio.sleep(0.2)
                    continue
                if host in self._pretended:
                    stream.close()
                    await asyncio.sleep(0.2)
                    continue
                try:
                    await way(stream, self._identity(key=way is not _without_key))
                    for number, method in enumerate(_METHODS, 1):
                        _send(stream, frames.encode(frames.REQUEST, method.number, 0, number, b"", 0, 1000, number))
                    found = await _heard(stream, _LISTENS_S)
                except (OSError, _Ended):
                    self.refused += 1
                    continue
                finally:
                    stream.close()
                self.refused += 1
                if answered := [header for header, _ in found if header.kind == frames.RESPONSE]:
                    self.violations.append(f"I21: {host} has answered {len(answered)} calls {way.__name__.strip('_')}")

    async def _pretend(self, process: Process, host: str) -> None:
        server = Server(
            SimNet(self._world.fabric, process),
            self._identity(key=self._made % 2 == 0),
            clock=SimClock(self._world.loop, process=process),
        )
        for method in _METHODS:
            server.serve(method, self._betrayed(host, method))
        await server.start(host, PORT)
        await asyncio.Event().wait()

    def _betrayed(self, host: str, method: Method[Any, Any]) -> Callable[[Any], Any]:
        async def take(request: Any) -> Any:
            self.violations.append(f"I21: {method} was sent to an impostor of {host}")
            raise ThreefsError("thank you")

        return take


class _Ended(Exception):
    """The other side has closed the connection."""


async def _without_key(stream: SimStream, identity: Identity) -> None:
    _send(stream, handshake.frame(handshake.hello(identity).SerializeToString()))


async def _with_another_key(stream: SimStream, identity: Identity) -> None:
    hand = handshake.ClientHandshake(identity, stream.service, stream.peer)
    _send(stream, handshake.frame(hand.begin()))
    theirs = (await _heard(stream, _LISTENS_S, 1))[0][1]
    mine = handshake.hello(identity).SerializeToString()
    key, side, service = identity.token, handshake._CLIENT, stream.service
    _send(stream, handshake.frame(handshake._proven(mine, key, side, service, hand.begin(), theirs)))


async def _with_the_proof_of_the_server(stream: SimStream, identity: Identity) -> None:
    hand = handshake.ClientHandshake(replace(identity), stream.service, stream.peer)
    _send(stream, handshake.frame(hand.begin()))
    _send(stream, handshake.frame((await _heard(stream, _LISTENS_S, 1))[0][1]))


def _send(stream: SimStream, message: bytes) -> None:
    if stream.send([message]) != len(message):
        raise _Ended


async def _heard(stream: SimStream, length_s: float, most: int = 1 << 30) -> list[tuple[frames.Header, bytes]]:
    """Frames that come within that time. Raises OSError, _Ended if there are not so many, and fewer than asked for."""
    had, found = bytearray(), list[tuple[frames.Header, bytes]]()
    into = memoryview(bytearray(1 << 16))
    loop = asyncio.get_running_loop()
    end = loop.time() + length_s
    while loop.time() < end and len(found) < most:
        try:
            count = stream.recv_into([into])
        except BlockingIOError:
            await asyncio.sleep(0.01)
            continue
        if not count:
            break
        had += into[:count]
        while len(had) >= frames.HEADER_BYTES:
            header = frames.decode(had, 0, _LIMITS)
            size = frames.HEADER_BYTES + header.body_bytes + header.inline_bytes
            if len(had) < size:
                break
            found.append((header, bytes(had[frames.HEADER_BYTES : frames.HEADER_BYTES + header.body_bytes])))
            del had[:size]
    if most < 1 << 30 and len(found) < most:
        raise _Ended
    return found


def draw(dice: SeededRandom, world: World, length_s: float) -> list[tuple[float, str, str, float]]:
    """Moments, kinds, hosts and times of a run."""
    hosts = [*world.storage_hosts, *world.meta_hosts, *world.manager_hosts]
    return [
        (dice.uniform(0, length_s), KINDS[dice.below(2)], hosts[dice.below(len(hosts))], dice.uniform(*LASTS_S))
        for _ in range(2 + dice.below(4))
    ]
