"""Frames over a stream that gives and takes as few bytes at a time as it likes."""

import asyncio
import gc
import itertools
import weakref
from collections.abc import Callable, Sequence
from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.harness.rpc import on_a_loop
from threefs.env.net import Buffer
from threefs.env.packet_marks import PacketMark
from threefs.errors import ConnectionLost, ProtocolError, ThreefsError
from threefs.rpc import frames
from threefs.rpc.connection_turns import Turns
from threefs.rpc.frame_stream import FrameStream
from threefs.rpc.frames import SEGMENT_BYTES, Header
from threefs.rpc.limits import Limits


class Trickle:
    """One end of a pipe: each call moves at most as many bytes as the next of `steps`, 0 stands for "not now"."""

    def __init__(self, steps: Sequence[int]) -> None:
        self.peer = "pipe"
        self.service = ""
        self.is_local = False
        self.closed = False
        self.arrived = bytearray()
        self.other: Trickle
        self._steps = list(steps)
        self.calls = 0
        self._turn = 0
        self._readable: Callable[[], None] | None = None
        self._writable: Callable[[], None] | None = None

    def _step(self) -> int:
        self._turn += 1
        step = self._steps[self._turn % len(self._steps)]
        if not step:
            raise BlockingIOError
        return step

    def recv_into(self, views: Sequence[memoryview]) -> int:
        self.calls += 1
        if not self.arrived:
            if self.other.closed:
                return 0
            raise BlockingIOError
        left = min(self._step(), len(self.arrived), sum(len(view) for view in views))
        count = left
        for view in views:
            part = min(left, len(view))
            view[:part] = self.arrived[:part]
            del self.arrived[:part]
            left -= part
        return count

    def send(self, pieces: Sequence[Buffer]) -> int:
        self.calls += 1
        if self.other.closed:
            raise BrokenPipeError(32, "Broken pipe")
        data = b"".join(bytes(piece) for piece in pieces)[: self._step()]
        self.other.arrived += data
        return len(data)

    def on_readable(self, callback: Callable[[], None] | None) -> None:
        self._readable = callback

    def on_writable(self, callback: Callable[[], None] | None) -> None:
        self._writable = callback

    def mark(self, mark: PacketMark) -> None:
        pass

    def close(self) -> None:
        self.closed = True

    def poke(self) -> None:
        if not self.closed and self._writable is not None:
            self._writable()
        if not self.closed and self._readable is not None and (self.arrived or self.other.closed):
            self._readable()


class Collected:
    """Keeps what a link receives."""

    def __init__(self) -> None:
        self.frames: list[tuple[int, int, bytes]] = []
        self.payload: dict[int, bytearray] = {}
        self.ended: ThreefsError | None = None
        self._place = memoryview(b"")

    def frame(self, header: Header, body: bytes) -> Sequence[memoryview]:
        if header.kind != frames.SEGMENT:
            self.frames.append((header.kind, header.call_id, body))
        if not header.payload_bytes:
            return ()
        self._place = memoryview(bytearray(header.inline_bytes))
        half = len(self._place) // 2
        return [self._place[:half], self._place[half:]]

    def payload_done(self, header: Header) -> None:
        self.payload.setdefault(header.call_id, bytearray()).extend(self._place)

    def lost(self, error: ThreefsError) -> None:
        assert self.ended is None, "told once"
        self.ended = error


def joined(steps: Sequence[int]) -> tuple[Trickle, Trickle]:
    one, other = Trickle(steps), Trickle(steps)
    one.other, other.other = other, one
    return one, other


async def settle(*streams: Trickle) -> None:
    for _ in range(20_000):
        await asyncio.sleep(0)
        before = [(stream._turn, len(stream.arrived)) for stream in streams]
        for stream in streams:
            stream.poke()
        await asyncio.sleep(0)
        if before == [(stream._turn, len(stream.arrived)) for stream in streams] and not any(
            stream.arrived for stream in streams if not stream.closed
        ):
            return
    raise AssertionError("the pipe never came to rest")


steps = st.lists(st.integers(0, 70_000), min_size=1, max_size=6).filter(any)
messages = st.lists(st.tuples(st.integers(0, 40_000), st.integers(0, 600_000)), min_size=1, max_size=4)


@settings(max_examples=60, deadline=None)
@given(steps, messages)
@on_a_loop
async def test_every_byte_arrives_however_the_stream_cuts_them(
    steps: list[int], messages: list[tuple[int, int]]
) -> None:
    one, other = joined([step or 0 for step in steps] + [65_536])
    sender, receiver = Collected(), Collected()
    link = FrameStream(one, Limits(), sender)
    FrameStream(other, Limits(), receiver)
    sent: list[int] = []
    expected = {}
    for call_id, (body_bytes, payload_bytes) in enumerate(messages, start=1):
        body = bytes([call_id]) * body_bytes
        payload = bytes(call_id + i // 997 & 255 for i in range(payload_bytes))
        head = frames.encode(frames.REQUEST, 1, 0, call_id, body, payload_bytes)
        cut = payload_bytes // 3
        link.send(head, call_id, [payload[:cut], payload[cut:]], payload_bytes, partial(sent.append, call_id))
        expected[call_id] = (body, payload)
    assert link.sending
    await settle(one, other)
    assert sorted(sent) == sorted(expected) and not link.sending
    assert {call_id: body for _, call_id, body in receiver.frames} == {n: body for n, (body, _) in expected.items()}
    assert {n: bytes(p) for n, p in receiver.payload.items()} == {n: p for n, (_, p) in expected.items() if p}


class Answering(Collected):
    """Answers every frame at once with as many small ones."""

    def __init__(self, answers: int, body: bytes = b"") -> None:
        super().__init__()
        self.link: FrameStream
        self.gone: list[int] = []  # how much had gone out when each frame came
        self._answers = answers
        self._body = body

    def frame(self, header: Header, body: bytes) -> Sequence[memoryview]:
        self.gone.append(len(self.link._stream.other.arrived))  # type: ignore[attr-defined]
        for _ in range(self._answers):
            self.link.send(frames.encode(frames.RESPONSE, call_id=header.call_id, body=self._body))
        return super().frame(header, body)


async def test_a_call_costs_one_read_and_one_write() -> None:
    one, other = joined([1 << 20])
    asking, answering = Collected(), Answering(3)
    link = FrameStream(one, Limits(), asking)
    answering.link = FrameStream(other, Limits(), answering)
    for call_id in range(1, 4):
        link.send_now(frames.encode(frames.REQUEST, 1, 0, call_id))
        assert one.calls == call_id, "it has gone out"
    other.poke()
    assert other.calls == 2, "all answers together, without another look for more"
    one.poke()
    assert one.calls == 4
    assert [call_id for _, call_id, _ in asking.frames] == [1, 1, 1, 2, 2, 2, 3, 3, 3]


async def test_a_large_answer_does_not_wait_for_those_behind_it() -> None:
    for size, early in ((0, False), (5000, True)):
        one, other = joined([1 << 20])
        asking, answering = Collected(), Answering(1, bytes(size))
        link = FrameStream(one, Limits(), asking)
        answering.link = FrameStream(other, Limits(), answering)
        for call_id in range(1, 4):
            link.send_now(frames.encode(frames.REQUEST, 1, 0, call_id))
        other.poke()
        assert [bool(gone) for gone in answering.gone] == [False, early, early]
        await settle(one, other)
        assert [call_id for _, call_id, _ in asking.frames] == [1, 2, 3]


async def test_a_large_message_does_not_overtake() -> None:
    one, other = joined([40, 0, 3000])
    receiver = Collected()
    link = FrameStream(one, Limits(), Collected())
    FrameStream(other, Limits(), receiver)
    sizes = [0, 5000, 0, 9000, 0, 3000, 0]
    for call_id, size in enumerate(sizes, 1):
        link.send(frames.encode(frames.REQUEST, 1, 0, call_id, bytes(size)))
    await settle(one, other)
    assert [(call_id, len(body)) for _, call_id, body in receiver.frames] == [*enumerate(sizes, 1)]
    other.close()
    link.send(frames.encode(frames.REQUEST, 1, 0, 8, bytes(5000)))
    assert link.closed


async def test_what_is_urgent_does_not_overtake() -> None:
    one, other = joined([40, 0])  # so much at a time, and not every time
    receiver = Collected()
    link = FrameStream(one, Limits(), Collected())
    FrameStream(other, Limits(), receiver)
    link.send(frames.encode(frames.REQUEST, 1, 0, 1))
    for call_id in (2, 3, 4):
        link.send_now(frames.encode(frames.REQUEST, 1, 0, call_id))
        await asyncio.sleep(0)
    link.send(frames.encode(frames.REQUEST, 1, 0, 5, b"", 100), 5, [bytes(100)], 100)
    link.send_now(frames.encode(frames.REQUEST, 1, 0, 6))
    await settle(one, other)
    assert [call_id for _, call_id, _ in receiver.frames] == [1, 2, 3, 4, 5, 6]


async def test_what_is_sent_on_a_broken_link_at_once_ends_it() -> None:
    one, other = joined([10])
    mine = Collected()
    link = FrameStream(one, Limits(), mine)
    other.close()
    link.send_now(frames.encode(frames.REQUEST, 1, 0, 1))
    assert isinstance(mine.ended, ConnectionLost) and link.closed
    link.send_now(frames.encode(frames.REQUEST, 1, 0, 2))


async def test_long_messages_take_turns() -> None:
    one, other = joined([1 << 20])
    receiver = Collected()
    order: list[int] = []
    link = FrameStream(one, Limits(), Collected())
    FrameStream(other, Limits(), receiver)
    for call_id, size in ((1, 20 * SEGMENT_BYTES), (2, 100)):
        head = frames.encode(frames.RESPONSE, 1, 0, call_id, b"", size)
        link.send(head, call_id, [bytes(size)], size, partial(order.append, call_id))
    await settle(one, other)
    assert order == [2, 1]


async def test_payload_that_lost_its_place_goes_nowhere_and_the_rest_arrives() -> None:
    one, other = joined([50])  # so that one wake-up ends within the first payload
    receiver = Collected()
    link = FrameStream(one, Limits(), Collected())
    receiving = FrameStream(other, Limits(), receiver)
    for call_id in (1, 2):
        link.send(frames.encode(frames.RESPONSE, 1, 0, call_id, b"", 1000), call_id, [b"\xff" * 1000], 1000)
    await asyncio.sleep(0)
    for _ in range(6):
        one.poke()
    other.poke()
    place = receiver._place
    before = bytes(place)
    assert 0 < before.count(b"\xff") < 1000
    receiving.discard_payload(2)
    receiving.discard_payload(1)
    await settle(one, other)
    assert bytes(place) == before
    assert bytes(receiver.payload[2]) == b"\xff" * 1000


class Lent(Collected):
    """Receives into memory that may be taken away from it."""

    def __init__(self) -> None:
        super().__init__()
        self.link: FrameStream
        self.owner: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def frame(self, header: Header, body: bytes) -> Sequence[memoryview]:
        self.link.owner = self.owner
        return super().frame(header, body)


async def test_nothing_is_written_to_memory_from_the_moment_in_which_its_owner_is_done() -> None:
    one, other = joined([50])
    receiver = Lent()
    link = FrameStream(one, Limits(), Collected())
    receiver.link = FrameStream(other, Limits(), receiver)
    link.send(frames.encode(frames.RESPONSE, 1, 0, 1, b"", 1000), 1, [b"\xff" * 1000], 1000)
    await asyncio.sleep(0)
    for _ in range(6):
        one.poke()
    other.poke()
    before = bytes(receiver._place)
    assert 0 < before.count(b"\xff") < 1000
    receiver.owner.cancel()
    for _ in range(100):  # in the very turn in which it was cancelled
        one.poke()
        other.poke()
    assert not other.arrived and bytes(receiver._place) == before


async def test_nothing_is_read_from_memory_from_the_moment_in_which_its_owner_is_done() -> None:
    for begun in (False, True):
        one, other = joined([50_000, 0])
        receiver = Collected()
        link = FrameStream(one, Limits(), Collected())
        FrameStream(other, Limits(), receiver)
        owner: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        size = 4 * SEGMENT_BYTES
        memory = bytearray(b"m" * size)
        views = [memoryview(memory)[:300_000], memoryview(memory)[300_000:]]
        link.send(frames.encode(frames.REQUEST, 1, 0, 7, b"", 20), 7, [b"n" * 20], 20)
        link.send(frames.encode(frames.REQUEST, 1, 0, 1, b"", size), 1, views, size, owner=owner)
        if begun:
            await asyncio.sleep(0)
            one.poke()
        owner.cancel()
        memory[:] = b"F" * size
        link.send(frames.encode(frames.CANCEL, call_id=1))
        link.send(frames.encode(frames.REQUEST, 1, 0, 2, b"", 10), 2, [b"0123456789"], 10)
        await settle(one, other)
        assert bytes(receiver.payload[2]) == b"0123456789" and bytes(receiver.payload[7]) == b"n" * 20
        got = bytes(receiver.payload.get(1, b""))
        assert b"F" not in got and (b"m" in got) == begun
        assert len(got) < size, "the rest is not sent"
        assert not link.queued_bytes


async def test_a_peer_that_left_ends_the_link_and_gives_back_what_waits() -> None:
    one, other = joined([10])
    mine, sent = Collected(), []
    link = FrameStream(one, Limits(), mine)
    link.send(
        frames.encode(frames.RESPONSE, call_id=1, payload_bytes=100), 1, [bytes(100)], 100, lambda: sent.append(1)
    )
    await asyncio.sleep(0)
    other.close()
    one.poke()
    assert isinstance(mine.ended, ConnectionLost) and sent == [1] and link.closed
    link.send(b"late", sent=lambda: sent.append(2))
    assert sent == [1, 2], "what is sent too late is over at once"


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([10, 40_000]), st.data())
@on_a_loop
async def test_a_damaged_frame_ends_the_link_and_is_not_taken_for_another(body_bytes: int, data: st.DataObject) -> None:
    """Also one whose body is too long for the ring. The peer may try again: nothing is wrong with it."""
    one, other = joined([1 << 20])
    receiver = Collected()
    FrameStream(one, Limits(), Collected())
    FrameStream(other, Limits(), receiver)
    frame = bytearray(frames.encode(frames.REQUEST, 301, 0, 1, bytes(body_bytes)))
    place = data.draw(st.integers(3, min(len(frame) - 1, 200)), label="behind magic and version")
    frame[place] ^= 1 << data.draw(st.integers(0, 7))
    other.arrived += frame
    await settle(one, other)
    assert not receiver.frames
    in_length = frames.HEADER_BYTES - 20 <= place < frames.HEADER_BYTES - 16
    if place < 7 or place >= frames.HEADER_BYTES:
        assert isinstance(receiver.ended, ConnectionLost)
    assert receiver.ended is not None or in_length, "more may have to come"


async def test_frames_that_are_much_work_leave_others_their_turn() -> None:
    one, other = joined([1 << 20])
    now = 0.0
    turns: list[int] = []

    class Working(Collected):
        def frame(self, header: Header, body: bytes) -> Sequence[memoryview]:
            nonlocal now
            now += 0.002
            return super().frame(header, body)

    receiver = Working()
    link = FrameStream(one, Limits(), Collected())
    FrameStream(other, Limits(), receiver, turns=Turns(lambda: now))
    for call_id in range(1, 11):
        link.send(frames.encode(frames.REQUEST, 1, 0, call_id))
    await asyncio.sleep(0)
    one.poke()
    other.poke()
    while len(receiver.frames) < 10:
        turns.append(len(receiver.frames))
        await asyncio.sleep(0)
    assert turns == [3, 6, 9]
    assert [call_id for _, call_id, _ in receiver.frames] == [*range(1, 11)]
    link.send(frames.encode(frames.REQUEST, 1, 0, 11))
    await settle(one, other)
    assert len(receiver.frames) == 11, "it listens again"


async def test_many_streams_with_work_leave_a_step_of_the_loop_to_others_and_none_is_passed_over() -> None:
    """Each took its whole turn in each step: a process with hundreds of busy peers had no time for its own calls."""
    now, worked = 0.0, list[int]()

    class Working(Collected):
        number = 0

        def frame(self, header: Header, body: bytes) -> Sequence[memoryview]:
            nonlocal now
            now += 0.006
            worked.append(self.number)
            return super().frame(header, body)

    turns = Turns(lambda: now)
    pairs = [joined([1 << 20]) for _ in range(50)]
    for number, (one, other) in enumerate(pairs):
        receiver = Working()
        receiver.number = number
        FrameStream(other, Limits(), receiver, turns=turns)
        link = FrameStream(one, Limits(), Collected())
        link.send(frames.encode(frames.REQUEST, 1, 0, 1))
        link.send(frames.encode(frames.REQUEST, 1, 0, 2, bytes(40_000)))  # in several parts
        link.flush()
    begun = [0]
    while len(worked) < 100:
        for one, other in pairs:
            one.poke()
            other.poke()
        await asyncio.sleep(0)
        begun.append(len(worked))
    assert all(0 < after - before <= 10 for before, after in itertools.pairwise(begun)), begun
    assert [*dict.fromkeys(worked)] == [*range(50)], "they get their turns in the order in which they came"


async def test_nonsense_is_answered_with_the_reason() -> None:
    one, other = joined([1 << 16])
    mine, theirs = Collected(), Collected()
    FrameStream(one, Limits(), mine)
    FrameStream(other, Limits(), theirs)
    one.arrived += b"GET / HTTP/1.1\r\nHost: nowhere.example\r\n\r\n"
    await settle(one, other)
    assert isinstance(mine.ended, ProtocolError)
    kind, _, body = theirs.frames[0]
    assert kind == frames.GOAWAY and isinstance(frames.error_from(body), ProtocolError)


class DeafStream:
    """Takes nothing, and says nothing."""

    peer = "deaf"

    service = ""

    is_local = False

    def recv_into(self, views: object) -> int:
        raise BlockingIOError

    def send(self, pieces: object) -> int:
        raise BlockingIOError

    def on_readable(self, callback: object) -> None: ...

    def on_writable(self, callback: object) -> None: ...

    def mark(self, mark: PacketMark) -> None:
        pass

    def close(self) -> None: ...


async def test_a_refused_link_is_not_kept_once_it_is_closed() -> None:
    """Found by fuzzing: thousands of refused peers a second each kept their buffers for ten seconds."""
    link = FrameStream(DeafStream(), Limits(hello_s=3600.0), Silent())
    link.refuse(ProtocolError("no"))
    await asyncio.sleep(0)
    link.close(ProtocolError("gone"))
    kept = weakref.ref(link)
    del link
    gc.collect()
    assert kept() is None


class Silent:
    def frame(self, header: object, body: bytes) -> list[memoryview]:
        return []

    def payload_done(self, header: object) -> None: ...

    def lost(self, error: object) -> None: ...
