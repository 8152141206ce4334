"""What clients did to chunks, when, and what they were told: the material of the checkers outside the system."""

import enum
from dataclasses import dataclass, field


class Kind(enum.StrEnum):
    WRITE = "write"  # payload at offset; a gap before it reads as zeros
    TRUNCATE = "truncate"  # to length: cut, or extend with zeros
    EXTEND = "extend"  # to at least length, with zeros
    REMOVE = "remove"
    READ = "read"


class Outcome(enum.StrEnum):
    OK = "ok"
    FAILED = "failed"  # certainly no effect
    UNKNOWN = "unknown"  # takes effect at any moment after it began, or never


@dataclass(frozen=True, slots=True)
class Operation:
    """One call of one client on one chunk. Times are of one clock for the whole history."""

    client: str
    kind: Kind
    chunk: str
    invoked: float
    returned: float | None  # None: never
    outcome: Outcome = Outcome.OK
    offset: int = 0  # of a write or read, in bytes
    length: int = 0  # of a read, or the new length
    payload: bytes = b""
    result: bytes | None = None  # of a read; None: there is no such chunk
    padded: bool = False  # of a read: zeros stand for what is not there, so the end and no chunk cannot be told
    version: int | None = None  # if the reply told one

    def __post_init__(self) -> None:
        if self.padded and (self.result is None or len(self.result) != self.length or self.version is not None):
            raise ValueError("a padded read has all the bytes that it asked for, and no version")
        if self.outcome is Outcome.OK and self.returned is None:
            raise ValueError("what went well has returned")
        if self.returned is not None and self.returned < self.invoked:
            raise ValueError("it returned before it began")

    def __str__(self) -> str:
        what = {
            Kind.WRITE: f"write {shown(self.payload)} at {self.offset}",
            Kind.TRUNCATE: f"truncate to {self.length}",
            Kind.EXTEND: f"extend to {self.length}",
            Kind.REMOVE: "remove",
            Kind.READ: f"read {self.length} at {self.offset} -> {'padded ' * self.padded}{shown(self.result)}",
        }[self.kind]
        end = "open" if self.outcome is Outcome.UNKNOWN else f"{self.returned:g}"
        version = f" (version {self.version})" if self.version is not None else ""
        return f"[{self.invoked:g}, {end}] {self.client}: {what}{version}"


def shown(content: bytes | None, most: int = 24) -> str:
    """Bytes for people: long ones cut."""
    if content is None:
        return "no chunk"
    return repr(content) if len(content) <= most else f"{content[:most]!r}... ({len(content)} bytes)"


def apply(content: bytes | None, operation: Operation) -> bytes | None:
    """The content after the operation. Any change but a removal makes a chunk that is not there."""
    kind, old = operation.kind, content or b""
    if kind is Kind.READ:
        return content
    if kind is Kind.REMOVE:
        return None
    if kind is Kind.WRITE:
        begin = operation.offset
        return old[:begin].ljust(begin, b"\0") + operation.payload + old[begin + len(operation.payload) :]
    kept = old[: operation.length] if kind is Kind.TRUNCATE else old
    return kept.ljust(operation.length, b"\0")


def result_of(read: Operation, content: bytes | None) -> bytes | None:
    """What the read tells if this is the content. Unless it is padded, no chunk is not the same as nothing there."""
    if read.padded:
        return (content or b"")[read.offset : read.offset + read.length].ljust(read.length, b"\0")
    return None if content is None else content[read.offset : read.offset + read.length]


@dataclass(slots=True)
class History:
    """Operations on many chunks, in the order in which they were told."""

    chunks: dict[str, list[Operation]] = field(default_factory=dict)

    def append(self, operation: Operation) -> int:
        """Its place among those on its chunk. What has begun is told as unknown at once, lest it is left out if it
        does not end."""
        told = self.chunks.setdefault(operation.chunk, [])
        told.append(operation)
        return len(told) - 1

    def tell_again(self, place: int, operation: Operation) -> None:
        self.chunks[operation.chunk][place] = operation

    def __len__(self) -> int:
        return sum(map(len, self.chunks.values()))
