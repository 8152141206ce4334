"""A two-layer fat tree of equal links: every host port hangs on a leaf, every leaf has a link to every spine.

A message is cut into segments. A port sends one segment at a time and holds few; beyond that it holds its senders back,
with all that waits behind their first segment (a lossless fabric), or it drops the segment, and its host sends it again
after a while (a lossy one). There is no congestion control: that is what request-to-send is for.
"""

from collections import deque
from dataclasses import dataclass
from random import Random

import simpy

SEGMENT_BYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class Links:
    """`room` counts segments that a port of a switch holds. `repeat_s` makes the fabric lossy."""

    bytes_per_s: float = 25e9  # 200 Gb/s
    hosts_per_leaf: int = 20
    spines: int = 20
    room: int = 4
    repeat_s: float | None = None


class Message:
    __slots__ = ("done", "missing", "route", "unsent")

    def __init__(self, route: list["Port"], segments: int, done: simpy.Event) -> None:
        self.route = route
        self.unsent = self.missing = segments
        self.done = done

    def arrived(self) -> None:
        self.missing -= 1
        if not self.missing:
            self.done.succeed()


class Segment:
    __slots__ = ("hop", "message")

    def __init__(self, message: Message) -> None:
        self.message = message
        self.hop = 0


class Port:
    """The sending end of a link."""

    __slots__ = ("_blocked", "_busy", "_fabric", "_queue", "_room", "dropped", "sent")

    def __init__(self, fabric: "Fabric", room: int) -> None:
        self.sent = self.dropped = 0
        self._fabric = fabric
        self._room = room
        self._queue: deque[Segment] = deque()
        self._blocked: deque[Port] = deque()  # ports whose first segment has no room here
        self._busy = False

    @property
    def is_full(self) -> bool:
        return len(self._queue) >= self._room

    def put(self, segment: Segment) -> None:
        self._queue.append(segment)
        if not self._busy:
            self._begin()

    def _begin(self) -> None:
        self._busy = True
        event = self._fabric.env.timeout(self._fabric.segment_s)
        assert event.callbacks is not None, "it has not happened yet"
        event.callbacks.append(self._sent)

    def _sent(self, _event: simpy.Event) -> None:
        segment = self._queue[0]
        following = segment.hop + 1
        route = segment.message.route
        if following == len(route):
            segment.message.arrived()
        elif not route[following].is_full:
            segment.hop = following
            route[following].put(segment)
        elif self._fabric.links.repeat_s is not None:
            route[following].dropped += 1
            self._fabric.repeat(segment)
        else:
            route[following]._blocked.append(self)  # this port stands still until there is room
            return
        self._go_on()

    def _go_on(self) -> None:
        """The first segment has left."""
        segment = self._queue.popleft()
        self.sent += 1
        self._busy = False
        message = segment.message
        if self is message.route[0] and message.unsent:  # its host sends its messages in turns
            message.unsent -= 1
            self._queue.append(Segment(message))
        if self._blocked:
            other = self._blocked.popleft()
            waiting = other._queue[0]
            waiting.hop += 1
            self.put(waiting)
            other._go_on()
        if self._queue and not self._busy:
            self._begin()


class Fabric:
    """Hosts are numbered by their ports, which are dealt to the leaves in turn."""

    def __init__(self, env: simpy.Environment, links: Links, host_ports: int, random: Random) -> None:
        self.env = env
        self.links = links
        self.segment_s = SEGMENT_BYTES / links.bytes_per_s
        self._random = random
        self._leaves = leaves = -(-host_ports // links.hosts_per_leaf)
        endless = 1 << 62  # the memory of a host
        self._out = [Port(self, endless) for _ in range(host_ports)]
        self._in = [Port(self, links.room) for _ in range(host_ports)]
        self._up = [[Port(self, links.room) for _ in range(links.spines)] for _ in range(leaves)]
        self._down = [[Port(self, links.room) for _ in range(leaves)] for _ in range(links.spines)]

    @property
    def dropped(self) -> int:
        switches = [self._in, *self._up, *self._down]
        return sum(port.dropped for ports in switches for port in ports)

    def send(self, source: int, target: int, size: int) -> simpy.Event:
        """An event for the arrival of the last byte."""
        done = self.env.event()
        segments = max(1, -(-size // SEGMENT_BYTES))
        message = Message(self._route(source, target), segments, done)
        message.unsent -= 1
        self._out[source].put(Segment(message))
        return done

    def repeat(self, segment: Segment) -> None:
        assert self.links.repeat_s is not None, "only a lossy fabric drops"
        message = segment.message
        event = self.env.timeout(self.links.repeat_s)
        assert event.callbacks is not None, "it has not happened yet"
        event.callbacks.append(lambda _: message.route[0].put(Segment(message)))

    def _route(self, source: int, target: int) -> list[Port]:
        here, there = source % self._leaves, target % self._leaves
        if here == there:
            return [self._out[source], self._in[target]]
        spine = self._random.randrange(self.links.spines)
        return [self._out[source], self._up[here][spine], self._down[spine][there], self._in[target]]
