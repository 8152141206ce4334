"""Sends and receives frames over one stream. It knows nothing of calls.

Received headers and bodies pass through a small ring. Payload goes from the kernel straight into the memory that the
receiver names. Sent payloads take turns segment by segment, so a small reply never waits for a large one.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from threefs.env.net import MAX_PIECES, Buffer, Stream
from threefs.errors import ConnectionLost, PeerClosed, ProtocolError, ThreefsError
from threefs.rpc import frames
from threefs.rpc.connection_turns import Turns
from threefs.rpc.frames import HEADER_BYTES, Header
from threefs.rpc.limits import Limits
from threefs.rpc.receive_buffers import UNWANTED, BodyBudget, Receiver, advance
from threefs.rpc.send_queue import Outgoing, Owner, QueuedBytes

_RING_BYTES = 16 << 10
_TURN_BYTES = 512 << 10  # handed to the kernel in one call
_READS_PER_WAKE = 16  # after which other connections get their turn
#: A message of this size is sent at once: the peer can work on it while this side makes the next one.
_LARGE_BYTES = 2 << 10
_ROOM_S = 0.05  # between attempts to get memory for a body
_NEVER = 1 << 62
_FEW_BYTES = 64 << 10  # to be sent by a stream that receives, also while all together have too much


class FrameStream:
    """Frames over a stream, which it owns. It is used only on the loop that made it."""

    def __init__(
        self,
        stream: Stream,
        limits: Limits,
        receiver: Receiver,
        queued: QueuedBytes | None = None,
        most_queued_bytes: int = _NEVER,
        turns: Turns | None = None,
        read_to_end: bool = False,
        bodies: BodyBudget | None = None,
    ) -> None:
        """`queued` counts the bytes that all streams of the process have to send. While this stream has more than
        `most_queued_bytes` to send, or has reserved memory for as much (`reserve`), it receives nothing, because the
        next answers would only wait as well. It works on received frames in the `turns` that it shares with other
        streams, if there are such. With `read_to_end`, frames that the peer has sent count even if it takes nothing any
        more. A body that does not come in one piece needs room in the budget `bodies`."""
        self.peer = stream.peer
        self.limits = limits  # of received frames
        self.queued_bytes = 0  # to be sent
        self.sent_bytes = 0  # taken by the kernel, in total
        self.received_bytes = 0  # in total
        self._queued = queued or QueuedBytes()
        self._reported_queued_bytes = 0  # in `_queued`, which counts only bytes that the kernel did not take at once
        self._most_queued_bytes = self._room_bytes = most_queued_bytes
        self._paused = self._pause_is_timed = False  # timed: for a time
        self._turns = turns
        self.goes_first = True  # among those that wait for their turn
        self._read_to_end = read_to_end
        self.closed = False
        self._stream = stream
        self._receiver = receiver
        #: The owner of the memory that receives payload now. Nothing is received into it after the owner is done.
        self.owner: Owner | None = None
        self._loop = asyncio.get_running_loop()
        # inbound
        self._ring = memoryview(bytearray(_RING_BYTES))
        self._start = self._end = 0
        self._header: Header | None = None  # of the frame whose body or payload is being received
        self._body: bytearray | None = None  # a body that does not fit the ring
        self._checksum = 0  # of the header of that body
        self._bodies = bodies or BodyBudget(_NEVER)
        self._destinations: deque[memoryview] = deque()
        # outbound
        self._queue: deque[Outgoing] = deque()
        self._pieces: deque[Buffer] = deque()
        self._finished: list[Callable[[], None]] = []
        self._borrowed: list[tuple[Owner, int, int]] = []  # the pieces of this turn that are in memory of a call
        self._sent_pieces = 0  # pieces of this turn that the kernel has taken
        self._flushing = False  # a flush runs, or is due at the end of this step of the loop
        self._blocked = False
        self._closing: ThreefsError | None = None
        self._close_timer: asyncio.TimerHandle | None = None
        stream.on_readable(self._readable)

    # ---- outbound

    def send(
        self,
        head: bytes,
        call_id: int = 0,
        payload: Sequence[Buffer] = (),
        length: int = 0,
        sent: Callable[[], None] | None = None,
        owner: Owner | None = None,
    ) -> None:
        """Queue one message. `head` is its header and body. `sent` is called once the kernel has its last byte, or the
        stream is closed. Until then the payload must not change. It is not read any more once `owner` is done; then
        `sent` may not be called, and the caller tells the peer by a CANCEL that the rest does not come. Small messages
        of one step of the loop are sent together: at the end of the step, or after the received frames of the step."""
        if self.closed:
            if sent is not None:
                sent()
            return
        self.queued_bytes += len(head) + length
        if not length and sent is None and not self._queue:
            self._pieces.append(head)
            if len(head) >= _LARGE_BYTES and not self._blocked:
                self._pump()
                return
        else:
            views = [view if isinstance(view, memoryview) else memoryview(view) for view in payload]
            self._queue.append(Outgoing(head, call_id, views, length, sent, owner))
        if self._blocked:
            self._report_queued()
        elif not self._flushing:
            self._flushing = True
            self._loop.call_soon(self.flush)

    def send_now(self, head: bytes) -> None:
        """Send a message without payload now: no other one will join it, and a step of the loop costs more than it."""
        if self._flushing or self._blocked or self.closed:
            self.send(head)
            return
        self.queued_bytes += len(head)
        self._pieces.append(head)
        self._pump()

    def _report_queued(self) -> None:
        self._queued.total_bytes += self.queued_bytes - self._reported_queued_bytes
        self._reported_queued_bytes = self.queued_bytes

    @property
    def sending(self) -> bool:
        """Whether bytes wait for the kernel."""
        return bool(self._queue or self._pieces)

    def flush(self) -> None:
        """Hand what waits to the kernel now, for example before work that holds up the loop."""
        self._flushing = False
        if not self._blocked:
            self._pump()

    def _writable(self) -> None:
        self._blocked = False
        self._stream.on_writable(None)
        if self._borrowed:
            self._blank()
        self._pump()

    def _blank(self) -> None:
        """Replace pieces that the kernel has not taken by zeros if their call has ended: the frame must keep its
        length, and the memory belongs to the call no longer."""
        for owner, begin, end in self._borrowed:
            if owner.done():
                for place in range(max(0, begin - self._sent_pieces), end - self._sent_pieces):
                    self._pieces[place] = bytes(len(self._pieces[place]))

    def _pump(self) -> None:
        while not self.closed:
            if not self._pieces and not self._take_turn():
                if self._closing is not None:
                    self.close(self._closing)
                return
            if not self._send_pieces():
                self._blocked = not self.closed
                if self._blocked:
                    self._report_queued()
                    self._stream.on_writable(self._writable)
                    if self._paused:
                        self._unpause()
                return
            self._sent_pieces = 0
            if self._borrowed:
                self._borrowed.clear()
            if self._reported_queued_bytes:
                self._report_queued()
            finished, self._finished = self._finished, []
            for sent in finished:
                sent()
            if self._paused:
                self._unpause()

    def reserve(self, size: int) -> None:
        """Reserve `size` more bytes for answers that will be sent; a negative size releases them."""
        self._room_bytes -= size
        if self._paused:
            self._unpause()

    def _unpause(self) -> None:
        room_bytes = self._room_bytes - self._most_queued_bytes // 2
        if self.queued_bytes <= room_bytes and not self._pause_is_timed and not self.closed:
            self._paused = False
            self._loop.call_soon(self._resume)

    def _resume(self) -> None:
        if not self.closed and self._closing is None and not self._paused:
            self._stream.on_readable(self._readable)
            self._readable(again=True)

    def _take_turn(self) -> bool:
        """Collect the next frames, one of each message in turn. False when nothing is queued."""
        pieces: list[Buffer] = []
        queue = self._queue
        total = 0
        while queue and total < _TURN_BYTES and len(pieces) < MAX_PIECES:
            message = queue.popleft()
            owner = message.owner
            if owner is not None and owner.done():
                self.queued_bytes -= message.remaining + len(message.head)
                continue
            if not message.head:  # a SEGMENT
                self.queued_bytes += HEADER_BYTES
            begin = len(pieces) + 1  # behind the header
            total += message.next_frame(pieces)
            if owner is not None:
                self._borrowed.append((owner, begin, len(pieces)))
            if message.remaining:
                queue.append(message)
            elif message.sent is not None:
                self._finished.append(message.sent)
        self._pieces.extend(pieces)
        return total > 0

    def _send_pieces(self) -> bool:
        """Hand all collected pieces to the kernel. False if it takes no more, or if the connection broke."""
        pieces = self._pieces
        while pieces:
            batch = [pieces[i] for i in range(MAX_PIECES)] if len(pieces) > MAX_PIECES else list(pieces)
            try:
                taken = self._stream.send(batch)
            except BlockingIOError:
                return False
            except OSError as error:
                self._break(ConnectionLost(f"connection to {self.peer} broke: {error.strerror or error}"))
                return False
            self.queued_bytes -= taken
            self.sent_bytes += taken
            while taken:
                first = pieces[0]
                if len(first) <= taken:
                    taken -= len(first)
                    pieces.popleft()
                    self._sent_pieces += 1
                else:
                    pieces[0] = memoryview(first)[taken:]
                    taken = 0
        return True

    def _break(self, error: ThreefsError) -> None:
        """The peer takes nothing any more. It may have sent answers before, and the reason of its close."""
        if self._read_to_end and not self._flushing:  # otherwise frames are being received now
            self._blocked = True  # nothing goes out any more
            try:
                while not self.closed and self._receive():
                    pass
            except ThreefsError as refused:
                error = refused
        self.close(error)

    # ---- inbound

    def discard_payload(self, call_id: int) -> None:
        """If payload of this call is being received, discard the rest of it, because its memory belongs to the call no
        longer."""
        if self._header is not None and self._header.call_id == call_id and self._body is None:
            self._discard_payload()

    def _discard_payload(self) -> None:
        self.owner = None
        self._destinations = deque(UNWANTED[: len(view)] for view in self._destinations)

    @property
    def expected_bytes(self) -> int:
        """The missing bytes of a body or payload that has begun; 1 if any other part of a frame has begun."""
        if self._body is not None:
            return sum(map(len, self._destinations))
        return not self._paused and (self._header is not None or self._start != self._end)

    def receive(self) -> None:
        """Process what has come by now, for example before what seems not to have come is given up."""
        if not self.closed and self._closing is None and not self._paused:
            self._readable()

    def _readable(self, *, again: bool = False) -> None:
        """Receive frames. With `again`, the ring may still hold some."""
        turns = self._turns
        if turns is not None and not turns.begin():
            self._pause_for_a_time(partial(turns.wait, first=self.goes_first))
            return
        self._flushing = True  # messages that are sent from here on go out below
        try:
            if again:
                self._parse()
            for _ in range(_READS_PER_WAKE):
                if self.closed or self._paused or self._must_pause() or not self._receive():
                    break
        except ThreefsError as error:
            self.refuse(error)
        except Exception as error:  # a part of the frames is lost, so no call may wait for the rest
            self.close(ConnectionLost(f"a frame of {self.peer} could not be processed: {type(error).__name__}"))
            raise
        finally:
            self._flushing = False
        if not self._blocked and (self._pieces or self._queue):
            self._pump()
        if turns is not None:
            turns.end()

    def _pause_for_a_time(self, wait: Callable[[Callable[[], None]], object]) -> None:
        """Let others go first, and receive, and process the rest of what was received, when `wait` calls back."""
        if not self._paused and not self.closed:
            self._paused = self._pause_is_timed = True
            self._stream.on_readable(None)
            wait(self._after_pause)

    def _after_pause(self) -> None:
        self._pause_is_timed = False
        if not self._must_pause():
            self._paused = False
            self._resume()

    def _must_pause(self) -> bool:
        room_bytes = min(self._room_bytes, _FEW_BYTES) if self._blocked and self._queued.is_full else self._room_bytes
        if self.queued_bytes <= room_bytes or self.closed or self._destinations:
            return False
        if not self._paused:
            self._paused = True
            self._stream.on_readable(None)
        return True

    def _receive(self) -> bool:
        """Read once, and process what came. False if the kernel had less than was asked for, so nothing more is there
        now."""
        if self.owner is not None and self.owner.done():
            self._discard_payload()
        wanted = self._destinations
        if wanted:
            views = [wanted[i] for i in range(MAX_PIECES - 1)] if len(wanted) >= MAX_PIECES else list(wanted)
            if len(views) == len(wanted):
                views.append(self._ring)
        else:
            if self._start == self._end:
                self._start = self._end = 0
            elif self._end > _RING_BYTES - 2 * HEADER_BYTES:
                self._compact()
            views = [self._ring[self._end :]]
        try:
            count = self._stream.recv_into(views)
        except BlockingIOError:
            return False
        except OSError as error:
            self.close(ConnectionLost(f"connection to {self.peer} broke: {error.strerror or error}"))
            return False
        if count == 0:
            self.close(PeerClosed(f"{self.peer} closed the connection"))
            return False
        self.received_bytes += count
        if wanted:
            rest = advance(wanted, count)
            if wanted:
                return True  # more of a long payload has usually come by now
            self._start = 0
            self._end = rest
            self._received_all()
        else:
            self._end += count
        full = self._end == _RING_BYTES
        self._parse()
        return full

    def _compact(self) -> None:
        rest = bytes(self._ring[self._start : self._end])
        self._ring[: len(rest)] = rest
        self._start, self._end = 0, len(rest)

    def _parse(self) -> None:
        """Process all complete frames in the ring, which keeps them during a pause. `_destinations` is set if a body or
        payload is incomplete."""
        while not self._destinations and not self.closed:
            if (self._blocked or self.queued_bytes > self._room_bytes) and self._must_pause():
                return
            start = self._start
            have = self._end - start
            if have < HEADER_BYTES:
                return
            header = frames.decode(self._ring, start, self.limits)
            size = HEADER_BYTES + header.body_bytes
            if have >= size:
                body = frames.body_at(self._ring, start, header)
                self._start = start + size
                self._begin(header, body)
                turns = self._turns
                if turns is not None and self._start != self._end and not self._destinations and turns.is_over():
                    self._pause_for_a_time(partial(turns.wait, first=self.goes_first))
                    return
            elif (into := self._take_room(header.body_bytes)) is None:
                return
            else:
                self._header, self._body = header, into
                self._checksum = frames.header_checksum(self._ring, start)
                self._start += HEADER_BYTES
                self._receive_into([memoryview(self._body)])

    def _take_room(self, size: int) -> bytearray | None:
        """Room for a body. None if there is none; then the next attempt comes after a pause."""
        if self._bodies.take(size):
            try:
                if not self.closed:
                    return bytearray(size)
            except MemoryError:
                self._bodies.give(size)
                raise
            self._bodies.give(size)  # this connection was evicted to make room
        self._pause_for_a_time(partial(self._loop.call_later, _ROOM_S))
        return None

    def _begin(self, header: Header, body: bytes) -> None:
        self._header = header
        views = self._receiver.frame(header, body)
        if header.payload_bytes and not self.closed:
            if sum(len(view) for view in views) != header.inline_bytes:
                raise ProtocolError(f"{self.peer} sent {header.inline_bytes} bytes of payload that do not fit")
            self._receive_into(views)
        else:
            self._header = None  # the frame is complete

    def _receive_into(self, views: Sequence[memoryview]) -> None:
        """Receive into views, first the bytes that are in the ring."""
        wanted = self._destinations
        wanted.extend(view for view in views if len(view))
        while wanted and self._start < self._end:
            view = wanted[0]
            take = min(len(view), self._end - self._start)
            view[:take] = self._ring[self._start : self._start + take]
            self._start += take
            if take == len(view):
                wanted.popleft()
            else:
                wanted[0] = view[take:]
        if not wanted:
            self._received_all()

    def _received_all(self) -> None:
        """The body or payload that was being received is complete."""
        header, self._header = self._header, None
        assert header is not None
        if self._body is not None:
            body, self._body = bytes(self._body), None
            self._bodies.give(len(body))
            frames.check_body(header, self._checksum, body)
            self._begin(header, body)
        else:
            self.owner = None
            self._receiver.payload_done(header)

    # ---- the end

    def refuse(self, error: ThreefsError) -> None:
        """Send the error to the peer, then close."""
        if self.closed or self._closing is not None:
            return
        self._closing = error
        self._stream.on_readable(None)
        body = frames.error_body(error)
        self.send(frames.encode(frames.GOAWAY, body=body))
        # A peer that does not read must not delay the close.
        self._close_timer = self._loop.call_later(self.limits.hello_s, self.close, error)

    def close(self, error: ThreefsError) -> None:
        if self.closed:
            return
        self.closed = True
        if self._close_timer is not None:
            self._close_timer.cancel()  # it would keep this object, and its memory, until it fires
        self._receiver.lost(error)  # before the peer can see the close
        self._stream.close()
        finished = [*self._finished, *(m.sent for m in self._queue if m.sent is not None)]
        for each in (self._queue, self._pieces, self._borrowed, self._finished, self._destinations):
            each.clear()
        self.queued_bytes = 0
        self._report_queued()
        # Reference cycles may keep this object until they are collected, but not its memory.
        self._ring, self._start, self._end = memoryview(b""), 0, 0
        self._bodies.give(len(self._body or b""))
        self._header = self._body = self.owner = None
        for sent in finished:
            sent()
