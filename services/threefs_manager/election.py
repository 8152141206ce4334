"""The fenced epoch: at most one manager's transactions commit (invariant I8).

The lease record {holder, epoch, seq, length} lies in the same store as everything it guards. Each write transaction of
a manager reads the record, so it conflicts with a takeover, and is refused when the epoch is no longer its own.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from threefs.env.clock import CLOCK, Clock
from threefs.env.random import RANDOM, Random
from threefs.errors import Fenced
from threefs.kv import records, retry
from threefs.kv.port import Engine, Transaction
from threefs.wire import manager_pb2 as pb

T = TypeVar("T")

LEASE_KEY = b"LEAS"
LENGTH_MS = 10_000


class Epoch:
    """The right to write, taken once when the manager starts."""

    def __init__(self, engine: Engine, holder: str, number: int, clock: Clock, random: Random) -> None:
        self.number = number
        self._engine = engine
        self._holder = holder
        self._clock = clock
        self._random = random

    @classmethod
    async def take(cls, engine: Engine, holder: str, *, clock: Clock = CLOCK, random: Random = RANDOM) -> "Epoch":
        """Raise the epoch and hold it. Whoever held it before is fenced from now on."""

        async def claim(tx: Transaction) -> int:
            lease = await read_lease(tx)
            if lease is not None and lease.holder == holder:
                return lease.epoch  # an attempt of ours with unknown outcome had succeeded
            epoch = (lease.epoch if lease is not None else 0) + 1
            tx.set(
                LEASE_KEY,
                records.encode(pb.Lease(holder=holder, epoch=epoch, seq=1, length_ms=LENGTH_MS)),
            )
            return epoch

        number = await retry.run(engine, claim, clock=clock, random=random, replayable=True)
        return cls(engine, holder, number, clock, random)

    async def run(self, function: Callable[[Transaction], Awaitable[T]], *, replayable: bool = False) -> T:
        """A write transaction of this epoch. Raises Fenced when another manager has taken over."""

        async def guarded(tx: Transaction) -> T:
            lease = await read_lease(tx)  # not a snapshot read: a takeover conflicts with the commit
            if lease is None or lease.epoch != self.number or lease.holder != self._holder:
                held = "nobody" if lease is None else f"{lease.holder} in epoch {lease.epoch}"
                raise Fenced(f"this manager held epoch {self.number}; now {held} does")
            return await function(tx)

        return await retry.run(self._engine, guarded, clock=self._clock, random=self._random, replayable=replayable)


async def read_lease(tx: Transaction) -> pb.Lease | None:
    value = await tx.get(LEASE_KEY)
    return None if value is None else records.decode(value, pb.Lease, LEASE_KEY)
