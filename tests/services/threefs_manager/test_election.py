import asyncio

import pytest
from threefs_manager.election import LEASE_KEY, Epoch, read_lease

from tests.support.clocks import SteppedClock
from tests.support.dice import Dice
from threefs.errors import Corrupt, Fenced
from threefs.kv.memory import MemoryEngine
from threefs.kv.port import Transaction


async def write(epoch: Epoch, key: bytes) -> None:
    async def body(tx: Transaction) -> None:
        tx.set(key, b"written")

    await epoch.run(body)


def test_every_start_raises_the_epoch_and_fences_the_one_before() -> None:
    async def main() -> None:
        engine = MemoryEngine()
        first = await Epoch.take(engine, "one")
        await write(first, b"a")
        second = await Epoch.take(engine, "two")
        assert (first.number, second.number) == (1, 2)
        with pytest.raises(Fenced, match="held epoch 1; now two in epoch 2 does"):
            await write(first, b"b")
        await write(second, b"c")
        assert await engine.begin().get_many([b"a", b"b", b"c"]) == [b"written", None, b"written"]
        lease = await read_lease(engine.begin())
        assert lease is not None and (lease.holder, lease.epoch, lease.seq) == ("two", 2, 1)
        assert lease.length_ms > 0

    asyncio.run(main())


def test_a_takeover_in_the_middle_of_a_transaction_fences_it() -> None:
    """I8: it read a lease that was still its own; the takeover must make its commit fail."""

    async def main() -> None:
        engine = MemoryEngine()
        first = await Epoch.take(engine, "one")
        attempts = 0

        async def body(tx: Transaction) -> None:
            nonlocal attempts
            attempts += 1
            tx.set(b"b", b"late")
            await Epoch.take(engine, "two")

        with pytest.raises(Fenced):
            await first.run(body)
        assert attempts == 1, "the second attempt saw the new lease before its body ran"
        assert await engine.begin().get(b"b") is None

    asyncio.run(main())


def test_the_same_number_with_another_holder_is_not_ours() -> None:
    async def main() -> None:
        one, two = MemoryEngine(), MemoryEngine()
        await Epoch.take(one, "one")
        stranger = await Epoch.take(two, "two")
        assert stranger.number == 1
        intruder = Epoch(one, "two", 1, SteppedClock(), Dice(1))
        with pytest.raises(Fenced):
            await write(intruder, b"a")

    asyncio.run(main())


@pytest.mark.parametrize("seed", range(10))
def test_unknown_commits_neither_lose_nor_skip_an_epoch(seed: int) -> None:
    async def main() -> None:
        clock, dice = SteppedClock(), Dice(seed)
        engine = MemoryEngine(random=dice, conflict_rate=0.3, unknown_rate=0.3, clock=clock)
        for number in range(1, 20):
            epoch = await Epoch.take(engine, f"holder-{number}", clock=clock, random=dice)
            assert epoch.number == number

    asyncio.run(main())


def test_a_damaged_lease_stops_the_manager() -> None:
    async def main() -> None:
        engine = MemoryEngine()
        tx = engine.begin()
        tx.set(LEASE_KEY, b"\x01abcdefgh")
        await tx.commit()
        with pytest.raises(Corrupt, match="LEAS"):
            await Epoch.take(engine, "one")

    asyncio.run(main())
