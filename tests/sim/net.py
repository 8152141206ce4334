"""The network of a simulation: byte streams between processes, with all that can happen to them.

Bytes of one connection keep their order. A blocked direction holds them back, as TCP does when its packets are lost;
after a while the sender gives the connection up. A narrow way holds back what is large, and all behind it, as where two
machines disagree about the largest packet. When the way is free again they travel with the next retransmission,
which comes about as late as the way was blocked for. Then the sender begins slowly: one message, a round trip later
two, then four. Who loses its process closes its sockets; who loses its power says nothing more.
"""

import asyncio
import contextvars
import errno
from collections import deque
from collections.abc import Callable, Sequence

from tests.harness.seeded_random import SeededRandom
from tests.harness.simulated.loop import KERNEL, Handle, Process, SimLoop
from threefs.env.net import MAX_PIECES, Buffer, Callback, Stream, parse_address
from threefs.env.packet_marks import PacketMark
from threefs.errors import ConnectionRefused, Unavailable

_WINDOW_BYTES = 1 << 20
_NARROW_BYTES = 4096  # of a message that a narrow way lets pass
_GIVE_UP_S = 15.0
_RETRY_S = 0.2
_FIRST_RETRANSMISSION_S = 0.2
_WINDOW_PROBE_S = 0.5
_FIRST_FREE_PORT = 40_000


class Fabric:
    """All wires. Faults are set here, between hosts."""

    def __init__(self, loop: SimLoop, random: SeededRandom) -> None:
        self.loop = loop
        self.random = random
        self.delay_s = (0.0001, 0.001)
        self.slow: dict[tuple[str, str], tuple[float, float]] = {}
        self.lossy: dict[tuple[str, str], float] = {}  # the chance that a message breaks its connection
        self.blocked: set[tuple[str, str]] = set()
        self.narrow_ways: set[tuple[str, str]] = set()  # nothing large gets from the first to the second
        self._failed_until: dict[tuple[str, str], float] = {}
        self.down: set[str] = set()  # hosts without power
        self.listeners: dict[str, SimListener] = {}
        self.streams: dict[SimStream, None] = {}
        self._next_port = _FIRST_FREE_PORT

    def free_port(self) -> int:
        self._next_port += 1
        return self._next_port

    def latency_s(self, source: str, destination: str) -> float:
        return self.random.uniform(*self.slow.get((source, destination), self.delay_s))

    def reaches(self, source: str, destination: str) -> bool:
        down = self.down
        return (source, destination) not in self.blocked and source not in down and destination not in down

    def block(self, source: str, destination: str) -> None:
        """Nothing gets from one host to the other any more, until `unblock`."""
        self.blocked.add((source, destination))

    def unblock(self, source: str, destination: str, *, deliver: bool = False) -> None:
        """With `deliver`, packets were held up on their way, not lost: they arrive now, without a retransmission."""
        self.blocked.discard((source, destination))
        self._failed_until[source, destination] = self.loop.time()
        self._go_on(source, destination, deliver=deliver)

    def _go_on(self, source: str, destination: str, *, deliver: bool = False) -> None:
        for stream in self.streams:
            if (stream.host, stream.other_host) == (source, destination):
                stream.go_on(deliver=deliver)

    def narrow(self, one: str, other: str) -> Callable[[], None]:
        """Nothing large gets from one host to the other, nor back; returns how to end that."""
        ways = (one, other), (other, one)
        self.narrow_ways.update(ways)

        def widen() -> None:
            self.narrow_ways.difference_update(ways)
            for way in ways:
                self._failed_until[way] = self.loop.time()
                self._go_on(*way)

        return widen

    def failed_since(self, moment: float) -> set[tuple[str, str]]:
        """From which host to which one something did not get, at that moment or later."""
        healed = {way for way, until in self._failed_until.items() if until >= moment}
        return self.blocked | self.narrow_ways | healed

    def cut(self, one: str, other: str) -> None:
        """Break all connections between two hosts: what is on its way is lost."""
        for stream in list(self.streams):
            if {stream.host, stream.other_host} == {one, other}:
                stream.break_off()

    def hang_up(self, one: str, other: str) -> None:
        """Something between ends all connections of two hosts: each side believes that the other one has done so."""
        for stream in list(self.streams):
            if {stream.host, stream.other_host} == {one, other}:
                stream.end()

    def power_off(self, host: str) -> None:
        """Its processes are to be killed before; nobody is told."""
        self.down.add(host)
        for stream in list(self.streams):
            if stream.host == host:
                stream.vanish()

    def power_on(self, host: str) -> None:
        """What waits to get there travels on, and is answered with a reset."""
        self.down.discard(host)
        for stream in self.streams:
            if stream.other_host == host:
                stream.go_on()


class SimNet:
    """threefs.env.net.Net of one process."""

    def __init__(self, fabric: Fabric, process: Process) -> None:
        self._fabric = fabric
        self._process = process

    async def listen(self, host: str, port: int, accept: Callable[[Stream], None]) -> "SimListener":
        address = f"{host}:{port or self._fabric.free_port()}"
        if address in self._fabric.listeners:
            raise Unavailable(f"cannot listen on {address}: address in use")
        return SimListener(self._fabric, self._process, address, accept)

    async def connect(self, address: str, timeout_s: float) -> "SimStream":
        fabric, here = self._fabric, self._process.host
        there, _ = parse_address(address)
        deadline = fabric.loop.time() + timeout_s
        wait_s = fabric.latency_s(here, there) + fabric.latency_s(there, here)
        while True:
            if fabric.loop.time() + wait_s > deadline:
                await asyncio.sleep(max(0.0, deadline - fabric.loop.time()))
                raise Unavailable(f"cannot connect to {address}: no answer in time")
            await asyncio.sleep(wait_s)
            if fabric.reaches(here, there) and fabric.reaches(there, here):
                break
            wait_s = _RETRY_S
        listener = fabric.listeners.get(address)
        if listener is None:
            raise ConnectionRefused(f"cannot connect to {address}: connection refused")
        mine = SimStream(fabric, self._process, there, address, address)
        theirs = SimStream(fabric, listener.process, here, f"{here}:0", address)
        mine.other, theirs.other = theirs, mine
        listener.take(theirs)
        return mine


class SimListener:
    def __init__(self, fabric: Fabric, process: Process, address: str, accept: Callable[[Stream], None]) -> None:
        self.address = address
        self.process = process
        self._fabric = fabric
        self._accept = accept
        self._context = contextvars.copy_context()
        fabric.listeners[address] = self
        process.on_kill[self.close] = None

    def take(self, stream: "SimStream") -> None:
        self._fabric.loop.call_soon(self._accept, stream, context=self._context)

    def close(self) -> None:
        self.process.on_kill.pop(self.close, None)
        if self._fabric.listeners.get(self.address) is self:
            del self._fabric.listeners[self.address]


class SimStream:
    """One end of a connection. `other` is the other end."""

    other: "SimStream"

    def __init__(self, fabric: Fabric, process: Process, other_host: str, peer: str, service: str) -> None:
        self.peer = peer
        self.service = service
        self.is_local = False
        self.host = process.host
        self.other_host = other_host
        self.marked = PacketMark()
        self._fabric = fabric
        self._process = process
        self._inbox: deque[memoryview] = deque()
        self._ended = False  # the other end said that nothing more comes
        self._broken = False  # reading and writing fail
        self._closed = False
        self._readable: tuple[Callback, contextvars.Context] | None = None
        self._writable: tuple[Callback, contextvars.Context] | None = None
        self._waking = [False, False]
        self._on_the_way: deque[memoryview | None] = deque()  # to the other end; None is its end
        self._travelling = 0  # of these, how many have a time of arrival
        self._unread_bytes = 0  # sent and not yet read over there
        self._arrives_at = 0.0
        self._gives_up: Handle | None = None
        self._held_back_since = 0.0  # while `_gives_up` is not None
        self._retransmission: Handle | None = None
        self._probe: Handle | None = None
        fabric.streams[self] = None
        process.on_kill[self.close] = None

    # ---- what the program uses

    def recv_into(self, views: Sequence[memoryview]) -> int:
        if self._closed:
            raise OSError(errno.EBADF, "bad file descriptor")
        if self._inbox:
            return self._fill(views)
        if self._broken:
            raise ConnectionResetError(errno.ECONNRESET, "connection reset by peer")
        if self._ended:
            return 0
        raise BlockingIOError

    def _fill(self, views: Sequence[memoryview]) -> int:
        total = 0
        inbox = self._inbox
        for view in views:
            at, size = 0, len(view)
            while at < size and inbox:
                data = inbox[0]
                take = min(len(data), size - at)
                view[at : at + take] = data[:take]
                at += take
                if take == len(data):
                    inbox.popleft()
                else:
                    inbox[0] = data[take:]
            total += at
            if not inbox:
                break
        self.other._was_read(total)
        return total

    def send(self, pieces: Sequence[Buffer]) -> int:
        if self._closed:
            raise OSError(errno.EBADF, "bad file descriptor")
        if self._broken:
            raise BrokenPipeError(errno.EPIPE, "broken pipe")
        if len(pieces) > MAX_PIECES:
            raise OSError(errno.EMSGSIZE, "message too long")
        room = _WINDOW_BYTES - self._unread_bytes
        if room <= 0:
            self._probe_later()
            raise BlockingIOError
        data = memoryview(b"".join(pieces))[:room]
        if data:
            self._unread_bytes += len(data)
            self._post(data)
        return len(data)

    def on_readable(self, callback: Callback | None) -> None:
        self._readable = None if callback is None else (callback, contextvars.copy_context())
        self._wake(0)

    def on_writable(self, callback: Callback | None) -> None:
        self._writable = None if callback is None else (callback, contextvars.copy_context())
        self._wake(1)

    def mark(self, mark: PacketMark) -> None:
        self.marked = mark

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._readable = self._writable = None
        self._process.on_kill.pop(self.close, None)
        if self._broken:
            self._leave()
        else:
            self._post(None)  # it goes on after us, with what was sent before it

    def _leave(self) -> None:
        """Nothing of this end is on its way any more."""
        self._fabric.streams.pop(self, None)

    # ---- the way to the other end

    def _post(self, data: memoryview | None) -> None:
        self._on_the_way.append(data)
        self.go_on()

    def go_on(self, *, deliver: bool = False) -> None:
        """Let travel what waits, unless the way is blocked. After a block it travels with the next retransmission, or
        at once with `deliver`."""
        loop = self._fabric.loop
        if self._is_held_back():
            if self._gives_up is None:
                self._held_back_since = loop.time()
                self._gives_up = loop.call_later(_GIVE_UP_S, self._give_up, context=KERNEL)
            return
        if self._gives_up is not None:
            if self._retransmission is None:
                wait_s = 0.0 if deliver else _until_retransmission(loop.time() - self._held_back_since)
                self._retransmission = loop.call_later(wait_s, self._retransmit, context=KERNEL)
            return
        self._let_travel(held_back=False)

    def _is_held_back(self) -> bool:
        fabric, way = self._fabric, (self.host, self.other_host)
        if way in fabric.narrow_ways and self._on_the_way and len(self._on_the_way[0] or b"") > _NARROW_BYTES:
            return True
        return not fabric.reaches(*way)

    def _retransmit(self) -> None:
        self._retransmission = None
        if self._gives_up is None or self._is_held_back():
            return  # the connection is broken, or the way is blocked again
        self._gives_up.cancel()
        self._gives_up = None
        self._let_travel(held_back=True)

    def _let_travel(self, *, held_back: bool) -> None:
        fabric, loop = self._fabric, self._fabric.loop
        number = 0
        way = (self.host, self.other_host)
        while self._travelling < len(self._on_the_way):
            self._travelling += 1
            number += 1
            at = max(self._arrives_at, loop._now + fabric.latency_s(*way))
            if held_back and number > 1 and number & number - 1 == 0:  # the next of the slow beginning
                at += fabric.latency_s(self.other_host, self.host) + fabric.latency_s(self.host, self.other_host)
            self._arrives_at = at
            loop.call_at(at, self._arrive, context=KERNEL)

    def _arrive(self) -> None:
        if not self._travelling:
            return  # the connection broke meanwhile
        self._travelling -= 1
        if self._is_held_back():
            self.go_on()  # it was lost, and is sent again when the way is free
            return
        if self._fabric.random.chance(self._fabric.lossy.get((self.host, self.other_host), 0.0)):
            self.break_off()
            return
        data = self._on_the_way.popleft()
        if data is None:
            self._leave()
        self.other._receive(data, self)

    def _receive(self, data: memoryview | None, sender: "SimStream") -> None:
        if self._closed or self._broken:
            if data is not None:
                sender.break_off(quietly=True)
            return
        if data is None:
            self._ended = True
        else:
            self._inbox.append(data)
        self._wake(0)

    def _was_read(self, count: int) -> None:
        self._unread_bytes -= count
        if self._writable is not None:
            self._wake(1)

    def _give_up(self) -> None:
        self._gives_up = None
        if self._on_the_way:
            self._break()

    def _probe_later(self) -> None:
        """Ask the other end for room from time to time, as TCP does while a window is closed: if that end is gone
        without a word, the machine answers with a reset when it has power again."""
        if self._probe is None:
            self._probe = self._fabric.loop.call_later(_WINDOW_PROBE_S, self._probe_window, context=KERNEL)

    def _probe_window(self) -> None:
        self._probe = None
        if self._closed or self._broken or self._unread_bytes < _WINDOW_BYTES:
            return
        if self.other._closed and not self._on_the_way and self._fabric.reaches(self.host, self.other_host):
            self.break_off(quietly=True)
        else:
            self._probe_later()

    def break_off(self, *, quietly: bool = False) -> None:
        """This end sees an error now, the other one with its next attempt (quietly) or at once."""
        self._break()
        if not quietly:
            self.other._break()

    def end(self) -> None:
        """Nothing more comes."""
        self._ended = True
        self._wake(0)

    def vanish(self) -> None:
        """The host is without power: nothing is said."""
        self._on_the_way.clear()
        self._travelling = 0
        self._closed = True
        self._leave()

    def _break(self) -> None:
        self._broken = True
        self._inbox.clear()
        self._on_the_way.clear()
        self._travelling = 0
        if self._closed:
            self._leave()
        self._wake(0)
        self._wake(1)

    # ---- waking the program, as long as it has reason to be awake

    def _wake(self, which: int) -> None:
        if not self._waking[which] and self._has_reason(which):
            registered = self._writable if which else self._readable
            assert registered is not None
            self._waking[which] = True
            self._fabric.loop.call_soon(self._woken, which, context=registered[1])

    def _has_reason(self, which: int) -> bool:
        if which == 0:
            return self._readable is not None and bool(self._inbox or self._ended or self._broken)
        return self._writable is not None and (self._broken or self._unread_bytes < _WINDOW_BYTES)

    def _woken(self, which: int) -> None:
        self._waking[which] = False
        if self._has_reason(which):
            registered = self._writable if which else self._readable
            assert registered is not None
            registered[0]()
            self._wake(which)


def _until_retransmission(held_back_s: float) -> float:
    """The time until the next attempt for what has been held back for that time: each wait is twice the one before."""
    wait_s, at = _FIRST_RETRANSMISSION_S, _FIRST_RETRANSMISSION_S
    while at <= held_back_s:
        wait_s *= 2
        at += wait_s
    return at - held_back_s
