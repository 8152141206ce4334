"""What clients did to chunks, when, and what they were told: the material of the checkers outside the system."""

import base64
import enum
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

MAX_PAYLOAD_BYTES = 1 << 20


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
    version: int | None = None  # if the reply told one

    def __post_init__(self) -> None:
        if max(len(self.payload), len(self.result or b"")) > MAX_PAYLOAD_BYTES:
            raise ValueError(f"a history keeps at most {MAX_PAYLOAD_BYTES} bytes per operation")
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
            Kind.READ: f"read {self.length} at {self.offset} -> {shown(self.result)}",
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


def matches(content: bytes | None, read: Operation) -> bool:
    """Whether a read of this content may have had this result. No chunk is not the same as nothing there."""
    if content is None or read.result is None:
        return content is read.result
    return content[read.offset : read.offset + read.length] == read.result


def _packed(content: bytes | None) -> str | None:
    return None if content is None else base64.b64encode(content).decode()


def to_json(operation: Operation) -> str:
    values = {name: getattr(operation, name) for name in Operation.__slots__}
    values["payload"] = _packed(operation.payload)
    values["result"] = _packed(operation.result)
    return json.dumps(values)


def from_json(line: str) -> Operation:
    values = json.loads(line)
    values["kind"], values["outcome"] = Kind(values["kind"]), Outcome(values["outcome"])
    values["payload"] = base64.b64decode(values["payload"])
    if values["result"] is not None:
        values["result"] = base64.b64decode(values["result"])
    return Operation(**values)


@dataclass(slots=True)
class History:
    """Operations on many chunks, in the order in which they were told."""

    chunks: dict[str, list[Operation]] = field(default_factory=dict)

    def append(self, operation: Operation) -> None:
        self.chunks.setdefault(operation.chunk, []).append(operation)

    def extend(self, operations: Iterable[Operation]) -> None:
        for operation in operations:
            self.append(operation)

    def __iter__(self) -> Iterator[Operation]:
        for operations in self.chunks.values():
            yield from operations

    def __len__(self) -> int:
        return sum(map(len, self.chunks.values()))

    def save(self, path: Path) -> None:
        with path.open("w", encoding="ascii") as file:
            file.writelines(to_json(operation) + "\n" for operation in self)

    @classmethod
    def load(cls, *paths: Path) -> "History":
        """All of these files as one. A last line that its writer did not finish is left out."""
        history = cls()
        for path in paths:
            with path.open(encoding="ascii") as file:
                history.extend(from_json(line) for line in file if line.endswith("\n"))
        return history
