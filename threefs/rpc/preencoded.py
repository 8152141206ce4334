"""A reply made of fields that are serialized already, which saves parsing and serializing them again."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Generic, TypeAlias

from threefs.rpc.methods import Rep


class PreencodedReply(Generic[Rep]):
    """Is sent as a message of that kind with these fields would be."""

    __slots__ = ("_body", "_kind")

    def __init__(self, kind: type[Rep], pieces: Iterable[bytes]) -> None:
        self._kind = kind
        self._body = b"".join(pieces)

    def SerializeToString(self) -> bytes:  # noqa: N802
        return self._body

    def parsed(self) -> Rep:
        """Raises DecodeError."""
        return self._kind.FromString(self._body)


#: The types that a handler may return.
Answer: TypeAlias = Rep | PreencodedReply[Rep]


@lru_cache(maxsize=4096)
def head(tag: bytes, length: int) -> bytes:
    """Tag and length of a field of `length` bytes, which precede its content."""
    return number(tag, length)


def number(tag: bytes, value: int) -> bytes:
    """A field that holds a number, as a varint. `value` is not negative."""
    found = bytearray(tag)
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)
