"""Messages that wait to be sent. A message with payload is cut into frames, which take turns with other messages."""

from collections.abc import Callable, Sequence
from typing import Protocol

from threefs.env.net import Buffer
from threefs.rpc import frames
from threefs.rpc.frames import SEGMENT_BYTES


class QueuedBytes:
    """Bytes that all streams of a process have to send. From `most_bytes` on, streams with more than a few of them
    receive nothing: small answers need no other room."""

    __slots__ = ("_most_bytes", "total_bytes")

    def __init__(self, most_bytes: int = 1 << 62) -> None:
        self.total_bytes = 0
        self._most_bytes = most_bytes

    @property
    def is_full(self) -> bool:
        return self.total_bytes >= self._most_bytes


class Owner(Protocol):
    """The future of a call, which owns the memory that is read or written for it."""

    def done(self) -> bool:
        """Whether the call has ended: nothing may touch its memory any more (I14)."""
        ...


class Outgoing:
    """A call's message that still has payload to send."""

    __slots__ = ("call_id", "head", "index", "offset", "owner", "remaining", "sent", "views")

    def __init__(
        self,
        head: bytes,
        call_id: int,
        views: Sequence[memoryview],
        length: int,
        sent: Callable[[], None] | None,
        owner: Owner | None,
    ) -> None:
        self.head = head
        self.call_id = call_id
        self.views = views
        self.remaining = length
        self.index = 0
        self.offset = 0
        self.sent = sent
        self.owner = owner

    def next_frame(self, pieces: list[Buffer]) -> int:
        """Append the pieces of the next frame. Returns their length in bytes."""
        inline = min(self.remaining, SEGMENT_BYTES)
        head = self.head or frames.encode(frames.SEGMENT, call_id=self.call_id, payload_bytes=inline)
        self.head = b""
        pieces.append(head)
        self.remaining -= inline
        total = len(head) + inline
        while inline:
            view = self.views[self.index]
            here = len(view) - self.offset
            if here <= inline:
                pieces.append(view[self.offset :] if self.offset else view)
                self.index += 1
                self.offset = 0
            else:
                here = inline
                pieces.append(view[self.offset : self.offset + here])
                self.offset += here
            inline -= here
        return total
