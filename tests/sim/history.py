"""What clients did to chunks and saw of them, and whether one order explains it (invariant I1).

The search is that of Wing and Gong with memory: an operation may come next if it began before the end of every other
operation that is not placed yet. One that fits a read is placed at once; only changes branch. A change with an unknown
outcome may come at any later time, or never.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

MOST_STATES = 4_000_000


class Undecided(AssertionError):
    """The search took too long. Says nothing about the history."""


@dataclass(slots=True)
class Operation:
    """One call of a client. `returned` is infinite while its outcome is not known."""

    client: str
    kind: str  # "write", "truncate", "extend", "remove", "read"
    offset: int = 0
    length: int = 0
    payload: bytes = b""
    seen: bytes = b""  # of a read: exactly `length` bytes, zeros where there is nothing
    invoked: float = 0.0
    returned: float = math.inf

    def __str__(self) -> str:
        what = f"{self.kind}({self.offset}, {self.length})"
        content = (self.seen if self.kind == "read" else self.payload)[:12]
        return f"{self.invoked:9.4f} .. {self.returned:9.4f} {self.client}: {what} {content!r}"


@dataclass(slots=True)
class History:
    """Operations by chunk."""

    chunks: dict[object, list[Operation]] = field(default_factory=dict)

    def add(self, chunk: object, operation: Operation) -> None:
        self.chunks.setdefault(chunk, []).append(operation)

    @property
    def operations(self) -> int:
        return sum(map(len, self.chunks.values()))

    def violations(self) -> list[str]:
        found = []
        for chunk, operations in self.chunks.items():
            if not linearizable(operations):
                lines = "\n".join(f"  {operation}" for operation in _shortest(operations))
                found.append(f"I1: no order explains what was seen of chunk {chunk}:\n{lines}")
        return found


def apply(content: bytes, operation: Operation) -> bytes:
    """The content of a chunk after a change; a chunk that does not exist is empty."""
    if operation.kind == "write":
        if len(content) < operation.offset:
            content = content.ljust(operation.offset, b"\0")
        return content[: operation.offset] + operation.payload + content[operation.offset + len(operation.payload) :]
    if operation.kind == "truncate":
        return content[: operation.length].ljust(operation.length, b"\0")
    if operation.kind == "extend":
        return content.ljust(operation.length, b"\0")
    assert operation.kind == "remove"
    return b""


def matches(content: bytes, read: Operation) -> bool:
    return content[read.offset : read.offset + read.length].ljust(read.length, b"\0") == read.seen


def linearizable(operations: Sequence[Operation], *, most_states: int = MOST_STATES) -> bool:
    """Raises Undecided."""
    ordered = sorted(operations, key=lambda operation: operation.invoked)
    count = len(ordered)
    needed = sum(1 << i for i, operation in enumerate(ordered) if operation.returned != math.inf)
    seen: set[tuple[int, int]] = set()
    contents: dict[bytes, int] = {}
    stack: list[tuple[int, bytes]] = [(0, b"")]
    while stack:
        placed, content = stack.pop()
        placed = _place_reads(ordered, placed, content)
        if placed & needed == needed:
            return True
        state = (placed, contents.setdefault(content, len(contents)))
        if state in seen:
            continue
        seen.add(state)
        if len(seen) > most_states:
            raise Undecided(f"{count} operations, {len(seen)} states")
        # The earliest one is tried first.
        changes = [i for i in reversed(_next(ordered, placed)) if ordered[i].kind != "read"]
        stack.extend((placed | 1 << i, apply(content, ordered[i])) for i in changes)
    return False


def _place_reads(ordered: Sequence[Operation], placed: int, content: bytes) -> int:
    """Place all reads that may come next and fit: that takes nothing from any other order."""
    while True:
        fitting = [i for i in _next(ordered, placed) if ordered[i].kind == "read" and matches(content, ordered[i])]
        if not fitting:
            return placed
        for i in fitting:
            placed |= 1 << i


def _next(ordered: Sequence[Operation], placed: int) -> list[int]:
    """Those that began before any other that is not placed has ended."""
    end = math.inf
    found = []
    for i, operation in enumerate(ordered):
        if operation.invoked > end:
            break
        if not placed >> i & 1:
            found.append(i)
            end = min(end, operation.returned)
    return [i for i in found if ordered[i].invoked <= end]


def _shortest(operations: Sequence[Operation]) -> list[Operation]:
    """The operations up to the first end that no order explains."""
    ends = sorted(operation.returned for operation in operations if operation.returned != math.inf)
    low, high = 0, len(ends) - 1
    while low < high:
        middle = (low + high) // 2
        if linearizable(_until(operations, ends[middle])):
            low = middle + 1
        else:
            high = middle
    return sorted(_until(operations, ends[low]), key=lambda operation: operation.invoked)


def _until(operations: Sequence[Operation], end: float) -> list[Operation]:
    """What had begun by then; what had not ended may yet have had its effect."""
    known = []
    for o in operations:
        if o.returned <= end:
            known.append(o)
        elif o.invoked <= end and o.kind != "read":
            known.append(Operation(o.client, o.kind, o.offset, o.length, o.payload, b"", o.invoked))
    return known
