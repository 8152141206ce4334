"""Which manager is primary: a fenced lease in the store that it guards (invariant I8, rule R10).

The lease is a record {holder, epoch, seq, length} in the same store as everything else that managers write. The holder
renews it by raising seq. A challenger takes over, with the next epoch, only after it has itself seen the record
unchanged for its length and a margin, by its own monotonic clock: clocks are never compared.

The term is a second record, {holder, epoch}, which a takeover changes and a renewal does not. Each write transaction of
a manager reads it, so it conflicts with a takeover, but not with the frequent renewals of its own lease. It is refused
when the epoch is no longer its own. A primary acknowledges heartbeats only while its newest renewal, counted from the
sending, is younger than half the length. So it has stopped long before a challenger may begin.

Releases up to 0.1 store no term. A takeover of theirs is seen in the lease, but does not conflict. So they read a
longer length in the lease than a transaction can last, and a manager that resigns ends its term as well.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from threefs.cluster import data_format
from threefs.cluster.manager_records import FORMAT_KEY
from threefs.env.clock import CLOCK, Clock
from threefs.env.random import RANDOM, Random
from threefs.errors import Fenced, NoSpace, Retry, ThreefsError
from threefs.kv import records, retry
from threefs.kv.engine_api import Engine, Transaction
from threefs.wire import manager_pb2 as pb

T = TypeVar("T")

LEASE_KEY, TERM_KEY = b"LEAS", b"TERM"
_NAME = "the store of the managers"
#: The lease of a primary is T divided by this, so that a challenger has taken over before a target's lease ends.
LEASES_PER_T = 5

_RENEWALS = 5  # per length
_MARGIN = 0.25  # of the length
_POLLS = 10  # of a challenger, per length
_OLD_RELEASES_WAIT_MS = 60_000  # much longer than the attempt of a transaction, and than a request to the store

_LOG = structlog.get_logger()


class Epoch:
    """One manager's right to write, until another one takes over."""

    def __init__(
        self, engine: Engine, holder: str, number: int, acquired_at: float, clock: Clock, random: Random
    ) -> None:
        self.number = number
        self.renewed_at = acquired_at  # when the newest successful renewal was sent
        self._engine = engine
        self._holder = holder
        self._clock = clock
        self._random = random

    async def run(
        self, function: Callable[[Transaction], Awaitable[T]], *, replayable: bool = False, timeout_s: float = 10.0
    ) -> T:
        """Run a write transaction of this epoch. Raises Fenced if another manager has taken over."""

        async def guarded(tx: Transaction) -> T:
            lease, term = await _read_lease_and_term(tx)
            tx.add_read_conflict(TERM_KEY)  # a takeover conflicts with the commit
            self._check(lease, term)
            return await function(tx)

        return await retry.run(
            self._engine,
            guarded,
            clock=self._clock,
            random=self._random,
            replayable=replayable,
            timeout_s=timeout_s,
        )

    async def renew(self, timeout_s: float) -> None:
        """Renew the lease. Raises Fenced, or the error of the store."""
        sent_at = self._clock.monotonic()

        async def increment(tx: Transaction) -> None:
            lease = await read_lease(tx)
            assert lease is not None and lease.epoch == self.number, "`run` has checked the epoch (I8)"
            lease.seq += 1
            tx.set(LEASE_KEY, records.encode(lease))

        await self.run(increment, replayable=True, timeout_s=timeout_s)
        assert sent_at >= self.renewed_at, "a renewal never moves the end of the lease back"
        self.renewed_at = sent_at

    async def resign(self) -> None:
        """Give the lease up, so that a challenger need not wait. No heartbeat may be acknowledged after this."""

        async def clear_holder(tx: Transaction) -> None:
            lease = await read_lease(tx)
            assert lease is not None and lease.epoch == self.number, "`run` has checked the epoch (I8)"
            lease.holder = ""
            lease.seq += 1
            tx.set(LEASE_KEY, records.encode(lease))
            tx.set(TERM_KEY, records.encode(pb.Term(epoch=self.number)))

        await self.run(clear_holder)

    def _check(self, lease: pb.Lease | None, term: pb.Term | None) -> None:
        """Raises Fenced. The lease tells of a takeover by a release that stores no term."""
        for record in (lease, term):
            if record is None or record.epoch != self.number or record.holder != self._holder:
                holder = "nobody" if record is None else f"{record.holder or 'nobody'} in epoch {record.epoch}"
                raise Fenced(f"this manager held epoch {self.number}; now {holder} does")


class Election:
    """The candidacy of one manager among those that share a store.

    `exclusive` says that the store admits one process at a time, so the holder before is known to have ended.
    """

    def __init__(
        self,
        engine: Engine,
        holder: str,
        *,
        length_s: float,
        exclusive: bool = False,
        clock: Clock = CLOCK,
        random: Random = RANDOM,
    ) -> None:
        self.epoch: Epoch | None = None
        self.is_over = False  # this manager stands for no further term
        self._engine = engine
        self._holder = holder
        self._length_s = length_s
        self._exclusive = exclusive
        self._clock = clock
        self._random = random

    def withdraw(self) -> Epoch | None:
        """Stand for no further term; returns the present one, which is over for this manager."""
        self.is_over = True
        epoch, self.epoch = self.epoch, None
        return epoch

    @property
    def is_primary(self) -> bool:
        """Whether no other manager can have taken over yet."""
        return self.epoch is not None and (self._exclusive or self._renewal_age_s() < self._length_s)

    @property
    def may_acknowledge(self) -> bool:
        """Whether leases of targets may be granted now (R10)."""
        return self.epoch is not None and (self._exclusive or self._renewal_age_s() < self._length_s / 2)

    def _renewal_age_s(self) -> float:
        assert self.epoch is not None
        return self._clock.monotonic() - self.epoch.renewed_at

    async def campaign(self) -> Epoch:
        """Wait until this manager may take over, and take over. Raises StrangeStore if a manager of a newer version has
        led, whose records this one might take for damage."""
        observed: tuple[str, int, int] | None = None
        unchanged_since = 0.0
        while True:
            try:
                tx = self._engine.begin()
                await data_format.check_store(tx, FORMAT_KEY, _NAME)
                lease = await read_lease(tx)
                now = self._clock.monotonic()
                current = (lease.holder, lease.epoch, lease.seq) if lease is not None else None
                if observed is None or current != observed:
                    observed, unchanged_since = current, now
                expires_after_s = (1 + _MARGIN) * (_length_s(lease) if lease is not None else 0.0)
                if self._exclusive or lease is None or not lease.holder or now - unchanged_since >= expires_after_s:
                    self.epoch = await self._take_over(lease)
                    return self.epoch
            except Fenced:
                _LOG.info("another manager has taken over first")
            except ThreefsError as error:
                if error.retry is Retry.NEVER and not isinstance(error, NoSpace):  # a full disk gets room again
                    raise
                _LOG.info("the lease of the primary cannot be read now", error=str(error))
            await self._clock.sleep(self._length_s / _POLLS)

    async def _take_over(self, seen: pb.Lease | None) -> Epoch:
        """Acquire the lease with the next epoch, if the record is still as it was seen. Raises Fenced."""
        sent_at = self._clock.monotonic()

        async def take(tx: Transaction) -> int:
            await data_format.claim_store(tx, FORMAT_KEY, _NAME)
            lease = await read_lease(tx)
            if lease is not None and lease.holder == self._holder and lease != seen:
                # An earlier attempt of unknown outcome has succeeded, perhaps before `sent_at`: others count anew.
                lease.seq += 1
                tx.set(LEASE_KEY, records.encode(lease))
                return lease.epoch
            if lease != seen:
                raise Fenced("another manager has changed the record of the lease")
            epoch = (lease.epoch if lease is not None else 0) + 1
            length_ms = round(self._length_s * 1000)
            old_length_ms = max(length_ms, _OLD_RELEASES_WAIT_MS)
            fresh = pb.Lease(holder=self._holder, epoch=epoch, seq=1, length_ms=length_ms, old_length_ms=old_length_ms)
            tx.set(LEASE_KEY, records.encode(fresh))
            tx.set(TERM_KEY, records.encode(pb.Term(holder=self._holder, epoch=epoch)))
            return epoch

        number = await retry.run(
            self._engine, take, clock=self._clock, random=self._random, replayable=True, timeout_s=self._length_s
        )
        assert number >= (seen.epoch if seen is not None else 1), "I8: epochs only rise"
        return Epoch(self._engine, self._holder, number, sent_at, self._clock, self._random)

    async def keep_renewing(self) -> None:
        """Renew the lease until another manager has taken over."""
        epoch = self.epoch
        assert epoch is not None
        pause_s = self._length_s / _RENEWALS
        while True:
            await self._clock.sleep(pause_s)
            try:
                await epoch.renew(self._length_s)
            except Fenced as error:
                _LOG.warning("no longer primary", reason=str(error))
                self.epoch = None
                return
            except ThreefsError as error:
                _LOG.warning("the lease cannot be renewed now", error=str(error))


def _length_s(lease: pb.Lease) -> float:
    return (lease.length_ms or lease.old_length_ms) / 1000


async def read_lease(tx: Transaction) -> pb.Lease | None:
    value = await tx.get(LEASE_KEY)
    return None if value is None else records.decode(value, pb.Lease, LEASE_KEY)


async def _read_lease_and_term(tx: Transaction) -> tuple[pb.Lease | None, pb.Term | None]:
    """As one state of the store has them. They count for no conflict."""
    lease, term = await tx.get_many((LEASE_KEY, TERM_KEY), snapshot=True)
    return (
        None if lease is None else records.decode(lease, pb.Lease, LEASE_KEY),
        None if term is None else records.decode(term, pb.Term, TERM_KEY),
    )
