"""At most one manager can write, and whoever may no longer be primary has stopped before another one begins."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from threefs_manager.election import LEASE_KEY, Election, Epoch, read_lease

from tests.harness.clocks import SteppedClock
from tests.harness.seeded_random import SeededRandom
from tests.harness.terms import take
from threefs.background import cancel_and_wait
from threefs.cluster.data_format import DATA_FORMAT
from threefs.cluster.manager_records import FORMAT_KEY
from threefs.errors import Corrupt, Fenced, NoSpace, StrangeStore, Unavailable
from threefs.kv import dump, records
from threefs.kv.engine_api import MAX_TRANSACTION_SECONDS, Transaction, TransactionCounts
from threefs.kv.memory import MemoryEngine
from threefs.kv.transaction import BufferedTransaction
from threefs.wire import manager_pb2 as pb

LENGTH_S = 1.0


async def write(epoch: Epoch, key: bytes) -> None:
    async def body(tx: Transaction) -> None:
        tx.set(key, b"written")

    await epoch.run(body)


async def test_every_start_raises_the_epoch_and_fences_the_one_before() -> None:
    engine = MemoryEngine()
    first = await take(engine, "one")
    await write(first, b"a")
    second = await take(engine, "two")
    assert (first.number, second.number) == (1, 2)
    with pytest.raises(Fenced, match="held epoch 1; now two in epoch 2 does"):
        await write(first, b"b")
    await write(second, b"c")
    assert await engine.begin().get_many([b"a", b"b", b"c"]) == [b"written", None, b"written"]
    lease = await read_lease(engine.begin())
    assert lease is not None and (lease.holder, lease.epoch, lease.seq) == ("two", 2, 1)
    assert lease.length_ms > 0


async def test_a_takeover_in_the_middle_of_a_transaction_fences_it() -> None:
    """I8: it read a lease that was still its own; the takeover must make its commit fail."""
    engine = MemoryEngine()
    first = await take(engine, "one")
    attempts = 0

    async def body(tx: Transaction) -> None:
        nonlocal attempts
        attempts += 1
        tx.set(b"b", b"late")
        await take(engine, "two")

    with pytest.raises(Fenced):
        await first.run(body)
    assert attempts == 1, "the second attempt saw the new lease before its body ran"
    assert await engine.begin().get(b"b") is None


async def test_renewals_do_not_hold_up_a_transaction() -> None:
    """At a slow store a transaction lasts longer than the pause between two renewals."""
    engine = MemoryEngine()
    epoch = await take(engine, "one")
    attempts = 0

    async def body(tx: Transaction) -> None:
        nonlocal attempts
        attempts += 1
        await epoch.renew(LENGTH_S)
        tx.set(b"a", b"written")

    await epoch.run(body)
    assert attempts == 1 and await engine.begin().get(b"a") == b"written"


async def old_release_takes(engine: MemoryEngine, holder: str) -> None:
    """As releases do that store no term."""
    tx = engine.begin()
    lease = await read_lease(tx)
    number = lease.epoch + 1 if lease is not None else 1
    fresh = pb.Lease(holder=holder, epoch=number, seq=1, old_length_ms=round(LENGTH_S * 1000))
    tx.set(LEASE_KEY, records.encode(fresh))
    await tx.commit()


async def test_a_takeover_by_an_old_release_fences_what_begins_after_it() -> None:
    engine = MemoryEngine()
    epoch = await take(engine, "one")
    await old_release_takes(engine, "old")
    with pytest.raises(Fenced, match="held epoch 1; now old in epoch 2 does"):
        await write(epoch, b"late")
    with pytest.raises(Fenced):
        await epoch.renew(LENGTH_S)


async def test_an_old_release_waits_until_no_transaction_of_ours_can_be_under_way() -> None:
    """Its takeover would not conflict with one."""
    engine = MemoryEngine()
    epoch = await take(engine, "one")
    lease = await read_lease(engine.begin())
    assert lease is not None and lease.old_length_ms > 5000 * MAX_TRANSACTION_SECONDS > lease.length_ms
    await epoch.renew(LENGTH_S)
    renewed = await read_lease(engine.begin())
    assert renewed is not None and renewed.old_length_ms == lease.old_length_ms


async def test_a_transaction_from_before_the_resignation_is_fenced_whoever_takes_over() -> None:
    """An old release takes over at once after a resignation, and changes no term."""
    engine = MemoryEngine()
    epoch = await take(engine, "one")

    async def body(tx: Transaction) -> None:
        tx.set(b"a", b"late")
        await epoch.resign()
        await old_release_takes(engine, "old")

    with pytest.raises(Fenced):
        await epoch.run(body)
    assert await engine.begin().get(b"a") is None


async def test_a_challenger_takes_over_from_an_old_release_after_the_length_that_this_one_has_stored() -> None:
    engine, clock = MemoryEngine(), SteppedClock()
    await old_release_takes(engine, "old")
    election = Election(engine, "one", length_s=10 * LENGTH_S, clock=clock, random=SeededRandom(1))
    began = clock.monotonic()
    assert (await election.campaign()).number == 2
    assert LENGTH_S < clock.monotonic() - began <= 3 * LENGTH_S


async def test_the_same_number_with_another_holder_is_not_ours() -> None:
    one, two = MemoryEngine(), MemoryEngine()
    await take(one, "one")
    stranger = await take(two, "two")
    assert stranger.number == 1
    intruder = Epoch(one, "two", 1, 0.0, SteppedClock(), SeededRandom(1))
    with pytest.raises(Fenced):
        await write(intruder, b"a")


@pytest.mark.parametrize("seed", range(10))
async def test_unknown_commits_neither_lose_nor_skip_an_epoch(seed: int) -> None:
    clock, dice = SteppedClock(), SeededRandom(seed)
    engine = MemoryEngine(random=dice, conflict_rate=0.3, unknown_rate=0.3, clock=clock)
    for number in range(1, 20):
        epoch = await take(engine, f"holder-{number}", clock=clock, random=dice)
        assert epoch.number == number


async def test_a_damaged_lease_stops_the_manager() -> None:
    engine = MemoryEngine()
    tx = engine.begin()
    tx.set(LEASE_KEY, b"\x01abcdefgh")
    await tx.commit()
    with pytest.raises(Corrupt, match="LEAS"):
        await take(engine, "one")


def manual() -> SteppedClock:
    return SteppedClock(sleepers_wait=True)


async def turns(count: int = 40) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_r10_a_challenger_waits_until_it_has_seen_the_record_unchanged_for_its_length_and_a_margin() -> None:
    engine, mine, theirs = MemoryEngine(), manual(), manual()
    primary = Election(engine, "one", length_s=LENGTH_S, clock=mine, random=SeededRandom(1))
    epoch = await primary.campaign()
    holding = asyncio.create_task(primary.keep_renewing())
    challenger = Election(engine, "two", length_s=LENGTH_S, clock=theirs, random=SeededRandom(2))
    winning = asyncio.create_task(challenger.campaign())
    for _ in range(50):  # as long as it is renewed nobody takes over, however long that is
        mine.advance(0.1)
        theirs.advance(0.11)
        await turns()
    assert not winning.done() and primary.is_primary and primary.may_acknowledge
    waited = 0.0
    while not winning.done():  # from now on the primary stands still
        theirs.advance(0.1)
        waited += 0.1
        await turns()
    assert LENGTH_S < waited < 1.6 * LENGTH_S
    assert (await winning).number == epoch.number + 1
    with pytest.raises(Fenced):
        await write(epoch, b"late")
    mine.advance(0.3)
    await turns()
    await holding
    assert primary.epoch is None and not primary.is_primary


async def test_r10_a_primary_stops_to_acknowledge_at_half_the_length_after_its_last_renewal_was_sent() -> None:
    class Gone(MemoryEngine):
        async def commit(self, attempt: object) -> None:
            if gone:
                raise Unavailable("the store is gone")
            await super().commit(attempt)  # type: ignore[arg-type]

    gone = False
    clock = manual()
    election = Election(Gone(), "one", length_s=LENGTH_S, clock=clock, random=SeededRandom(1))
    await election.campaign()
    gone = True
    holding = asyncio.create_task(election.keep_renewing())
    clock.advance(0.45)
    await turns()
    assert election.may_acknowledge
    clock.advance(0.1)
    await turns()
    assert not election.may_acknowledge and election.is_primary, "nobody else can have taken over yet"
    clock.advance(0.5)
    await turns()
    assert not election.is_primary
    await cancel_and_wait(holding)


async def test_a_primary_that_resigns_is_followed_at_once() -> None:
    engine, clock = MemoryEngine(), manual()
    epoch = await Election(engine, "one", length_s=LENGTH_S, clock=clock, random=SeededRandom(1)).campaign()
    await epoch.resign()
    successor = await Election(engine, "two", length_s=LENGTH_S, clock=clock, random=SeededRandom(2)).campaign()
    assert successor.number == epoch.number + 1


@pytest.mark.parametrize("seed", range(10))
async def test_of_several_challengers_one_wins_each_epoch(seed: int) -> None:
    clock, dice = SteppedClock(), SeededRandom(seed)
    engine = MemoryEngine(random=dice, conflict_rate=0.2, unknown_rate=0.2, clock=clock)
    elections = [Election(engine, f"m{n}", length_s=LENGTH_S, clock=clock, random=dice) for n in range(3)]
    wins = [asyncio.create_task(election.campaign()) for election in elections]
    done, _ = await asyncio.wait(wins, return_when=asyncio.FIRST_COMPLETED)
    numbers = [task.result().number for task in done]
    await asyncio.gather(*wins)  # nobody renews, so each has its turn
    numbers = sorted(task.result().number for task in wins)
    assert len(set(numbers)) == 3, "no epoch has two holders"


class Cable:
    """One manager's way to the store, which can be cut."""

    is_embedded = False
    durable_change = 0

    def __init__(self, engine: MemoryEngine) -> None:
        self.cut = False
        self.transaction_counts = TransactionCounts()
        self._engine = engine

    def begin(self) -> Transaction:
        if self.cut:
            raise Unavailable("the store cannot be reached")
        return self._engine.begin()

    async def close(self) -> None:
        """Nothing to release."""


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("rates", [(1.0, 1.0), (0.95, 1.05), (1.05, 0.95)])
async def test_r10_never_two_primaries_with_any_partition_and_any_drift_of_clocks(
    seed: int, rates: tuple[float, float]
) -> None:
    engine, dice = MemoryEngine(), SeededRandom(seed)
    clocks, cables = [manual(), manual()], [Cable(engine), Cable(engine)]
    elections = [
        Election(cable, f"m{n}", length_s=LENGTH_S, clock=clock, random=dice)
        for n, (cable, clock) in enumerate(zip(cables, clocks, strict=True))
    ]

    async def stand(election: Election) -> None:
        while True:
            epochs.append((await election.campaign()).number)
            await election.keep_renewing()

    epochs: list[int] = []
    tasks = [asyncio.create_task(stand(election)) for election in elections]
    for _ in range(1500):
        for clock, rate in zip(clocks, rates, strict=True):
            clock.advance(0.02 * rate)
        if dice.below(120) == 0:
            cables.reverse()
            cables[0].cut, cables[1].cut = True, dice.below(4) == 0
        await turns(12)
        assert sum(election.is_primary for election in elections) <= 1
        assert all(election.is_primary for election in elections if election.may_acknowledge)
    assert len(epochs) > 1 and len(set(epochs)) == len(epochs), "they take turns, each in an epoch of its own"
    await cancel_and_wait(*tasks)


async def test_r10_a_renewal_counts_from_its_sending() -> None:
    class Slow(MemoryEngine):
        async def commit(self, attempt: object) -> None:
            clock.advance(0.6)
            await super().commit(attempt)  # type: ignore[arg-type]

    clock = manual()
    election = Election(Slow(), "one", length_s=LENGTH_S, clock=clock, random=SeededRandom(1))
    epoch = await election.campaign()
    assert election.is_primary and not election.may_acknowledge, "the takeover took more than half the length"
    sent_at = clock.monotonic()
    await epoch.renew(LENGTH_S)
    assert epoch.renewed_at == sent_at and not election.may_acknowledge


async def test_a_manager_stands_for_a_term_until_the_store_has_room() -> None:
    """All standbys ended when the quota of the store was used up, and the primary could not renew its lease."""

    class Full(MemoryEngine):
        async def commit(self, attempt: object) -> None:
            if len(clock.sleeps) < 3:
                raise NoSpace("the quota is used up")
            await super().commit(attempt)  # type: ignore[arg-type]

    clock = SteppedClock()
    election = Election(Full(), "one", length_s=LENGTH_S, clock=clock, random=SeededRandom(1))
    assert (await election.campaign()).number == 1


async def test_a_single_manager_waits_for_no_lease_and_never_steps_back() -> None:
    engine, clock = MemoryEngine(), manual()
    await Election(engine, "one", length_s=LENGTH_S, clock=clock, random=SeededRandom(1)).campaign()
    began = clock.monotonic()
    second = Election(engine, "two", length_s=LENGTH_S, exclusive=True, clock=clock, random=SeededRandom(2))
    assert (await second.campaign()).number == 2 and clock.monotonic() == began
    clock.advance(100 * LENGTH_S)
    assert second.is_primary and second.may_acknowledge


async def test_a_deposed_primary_that_resigns_takes_nothing_from_its_successor() -> None:
    engine = MemoryEngine()
    first, second = await take(engine, "one"), await take(engine, "two")
    with pytest.raises(Fenced):
        await first.resign()
    with pytest.raises(Fenced):
        await first.renew(LENGTH_S)
    await second.renew(LENGTH_S)
    lease = await read_lease(engine.begin())
    assert lease is not None and (lease.holder, lease.epoch, lease.seq) == ("two", 2, 2)


async def test_the_own_earlier_term_is_fenced_as_well() -> None:
    """What it began to write before it lost the lease must not be written after it has won again."""
    engine = MemoryEngine()
    first = await take(engine, "one")
    await take(engine, "two")
    again = await take(engine, "one")
    assert again.number == 3
    with pytest.raises(Fenced, match="held epoch 1; now one in epoch 3 does"):
        await write(first, b"late")
    await write(again, b"a")


async def test_a_manager_does_not_lead_where_one_of_a_newer_version_has_led() -> None:
    """Whichever of the two campaigns at that moment; its records may have a form that this version takes for damage."""
    engine = MemoryEngine()
    await take(engine, "one")
    assert await engine.begin().get(FORMAT_KEY) == b"%d" % DATA_FORMAT
    tx = engine.begin()
    tx.set(FORMAT_KEY, b"%d" % (DATA_FORMAT + 1))
    tx.set(LEASE_KEY, b"in another form")
    await tx.commit()
    before = await engine.begin().get_range(b"", dump.KEYS_END)
    with pytest.raises(StrangeStore, match=f"newer version of threefs, in format {DATA_FORMAT + 1}"):
        await take(engine, "two")
    assert await engine.begin().get_range(b"", dump.KEYS_END) == before


class LateTakeover(MemoryEngine):
    """Does not answer the first commit. That is made while the store answers its next look, slowly."""

    def __init__(self, clock: SteppedClock, made: Callable[[], Awaitable[None]]) -> None:
        super().__init__(clock=clock)
        self._stepped, self._made = clock, made
        self._late: list[BufferedTransaction] = []
        self._answers = False

    async def commit(self, attempt: BufferedTransaction) -> None:
        if not self._answers:
            self._answers = True
            self._late.append(attempt)
            raise Unavailable("no answer")
        await super().commit(attempt)

    async def arrive(self) -> None:
        await super().arrive()
        if self._late:
            await super().commit(self._late.pop())
            await self._made()
            self._stepped.advance(0.9 * LENGTH_S)


async def test_r10_a_takeover_that_is_made_late_counts_from_when_others_can_have_seen_it() -> None:
    """Its manager asked again, and learned of it only when another one had waited for a while."""

    async def made() -> None:
        challenging.append(asyncio.create_task(challenger.campaign()))
        await turns()

    clock, challenging = manual(), list[asyncio.Task[Epoch]]()
    engine = LateTakeover(clock, made)
    late = Election(engine, "one", length_s=LENGTH_S, clock=clock, random=SeededRandom(1))
    challenger = Election(engine, "two", length_s=LENGTH_S, clock=clock, random=SeededRandom(2))
    winning = asyncio.create_task(late.campaign())
    for _ in range(60):
        clock.advance(0.05)
        await turns()
        assert not (late.is_primary and challenger.is_primary)
    assert [(await winning).number, (await challenging[0]).number] == [1, 2]
