"""The interface by which the ranks of a job agree: a small one, and the group of one process."""

import struct
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

#: Longer than the slowest rank takes to write its part of a checkpoint.
TIMEOUT_S = 1800.0

#: Buffers for each of the other ranks.
Buffers = Mapping[int, Sequence[memoryview]]

_LENGTH = struct.Struct("<Q")


class Group(ABC):
    """The ranks of a job. Each method is called by all of them, in the same order.

    A rank that is gone makes the calls of the others fail: with Unavailable, or what the implementation raises.
    """

    rank: int
    world: int

    @abstractmethod
    def all_gather(self, message: bytes) -> list[bytes]:
        """The message of each rank."""

    @abstractmethod
    def exchange(self, outgoing: Buffers, incoming: Buffers) -> None:
        """Send buffers to other ranks, and fill those that come from them. For each pair of ranks, both sides name as
        many buffers of the same lengths."""

    def from_rank_0(self, message: bytes) -> bytes:
        """The message of rank 0, which may be long: `all_gather` takes as much memory for the message of every rank."""
        (length,) = _LENGTH.unpack(self.all_gather(_LENGTH.pack(len(message)))[0])
        if not length:
            return b""
        content = memoryview(bytearray(message if self.rank == 0 else length))
        if self.rank == 0:
            self.exchange({other: [content] for other in range(1, self.world)}, {})
        else:
            self.exchange({}, {0: [content]})
        return bytes(content)

    @abstractmethod
    def twin(self) -> "Group":
        """Another group of the same ranks. Messages of the two do not mix, so another thread may use it."""

    def close(self) -> None:
        """Give up its connections."""
        return


class SingleGroup(Group):
    """One process for itself."""

    rank, world = 0, 1

    def all_gather(self, message: bytes) -> list[bytes]:
        return [message]

    def exchange(self, outgoing: Buffers, incoming: Buffers) -> None:
        assert not outgoing and not incoming, "there is no other rank"

    def twin(self) -> Group:
        return self
