"""A group whose ranks are processes of one host, connected with each other by UNIX sockets."""

from collections.abc import Callable
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import TypeVar

from threefs.env.clock import CLOCK, Clock
from threefs.env.worker_threads import StopFlag
from threefs.errors import Unavailable
from threefs_checkpoint.group import TIMEOUT_S, Buffers, Group

__all__ = ["ProcessGroup"]

T = TypeVar("T")

_PAUSE_S = 0.01


class ProcessGroup(Group):
    """One rank. The ranks meet in a directory of this host, which is new for each job and of which only the job knows.

    Ranks of several hosts use the group of torch.distributed instead.
    """

    def __init__(
        self, rank: int, world: int, directory: Path, *, timeout_s: float = TIMEOUT_S, clock: Clock = CLOCK
    ) -> None:
        """Waits for the other ranks. Raises Unavailable if they do not come."""
        self.rank, self.world = rank, world
        self._directory = directory
        self._timeout_s = timeout_s
        self._clock = clock
        self._twins = 0
        self._ended = ""  # why, once it has
        self._peers: dict[int, Connection] = {}
        directory.mkdir(mode=0o700, exist_ok=True)
        self._listener = Listener(str(self._socket(rank)), "AF_UNIX", backlog=world)  # others look for it until `close`
        try:
            self._ready(rank).touch()  # a socket has its name before it listens
            self._await_ranks()
            for lower in range(rank):
                self._peers[lower] = Client(str(self._socket(lower)), "AF_UNIX")
                self._peers[lower].send_bytes(rank.to_bytes(4, "little"))
            for _ in range(rank + 1, world):
                connection = self._listener.accept()
                self._peers[int.from_bytes(connection.recv_bytes(4), "little")] = connection
        except BaseException:
            self.close()
            raise

    def _socket(self, rank: int) -> Path:
        return self._directory / f"rank-{rank}"

    def _ready(self, rank: int) -> Path:
        return self._directory / f"ready-{rank}"

    def _await_ranks(self) -> None:
        deadline, pause = self._clock.monotonic() + self._timeout_s, StopFlag()
        waiting = [other for other in range(self.world) if other != self.rank]
        while waiting := [other for other in waiting if not self._ready(other).exists()]:
            if self._clock.monotonic() >= deadline:
                raise Unavailable(f"rank {self.rank} has waited {self._timeout_s:.0f} s for ranks {waiting}")
            pause.wait(_PAUSE_S)

    def all_gather(self, message: bytes) -> list[bytes]:
        found = {self.rank: message}

        def receive(other: int) -> None:
            found[other] = self._receive(other, Connection.recv_bytes)

        self._swap(lambda other: self._peers[other].send_bytes(message), receive)
        return [found[rank] for rank in range(self.world)]

    def exchange(self, outgoing: Buffers, incoming: Buffers) -> None:
        def send(other: int) -> None:
            for view in outgoing.get(other, ()):
                self._peers[other].send_bytes(view)

        def receive(other: int) -> None:
            for place in incoming.get(other, ()):
                self._receive(other, lambda connection, place=place: connection.recv_bytes_into(place))  # type: ignore[misc]

        self._swap(send, receive)

    def _swap(self, send: Callable[[int], None], receive: Callable[[int], None]) -> None:
        """Send to and receive from each other rank. Every rank serves its pairs in the order of all pairs, the lower
        rank of a pair sends first: so nobody waits in a circle, however large the messages are."""
        if self._ended:
            raise Unavailable(self._ended)
        for other in range(self.world):
            if other == self.rank:
                continue
            try:
                if self.rank < other:
                    send(other)
                    receive(other)
                else:
                    receive(other)
                    send(other)
            except Unavailable:  # a rank that sends nothing
                raise
            except (EOFError, ConnectionError):
                self._end(f"rank {other} has ended, or has lost another rank")
                raise Unavailable(self._ended) from None

    def _receive(self, other: int, receive: Callable[[Connection], T]) -> T:
        connection = self._peers[other]
        if not connection.poll(self._timeout_s):
            self._end(f"rank {other} has sent nothing for {self._timeout_s:.0f} s")
            raise Unavailable(self._ended)
        return receive(connection)

    def _end(self, reason: str) -> None:
        """Tell the ranks that wait for this one, by closing the connections: without one rank there is no group."""
        self.close()
        self._ended = reason

    def twin(self) -> Group:
        self._twins += 1
        below = self._directory / f"twin-{self._twins}"
        return ProcessGroup(self.rank, self.world, below, timeout_s=self._timeout_s, clock=self._clock)

    def close(self) -> None:
        self._ended = self._ended or "the group was closed"
        for connection in self._peers.values():
            connection.close()
        self._peers.clear()
        self._listener.close()
