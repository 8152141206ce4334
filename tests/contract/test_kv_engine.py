"""What every engine of the key-value port promises."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.harness.clocks import SteppedClock
from tests.harness.etcd import EtcdCluster
from tests.harness.postgres import PostgresServer
from tests.harness.seeded_random import SeededRandom
from tests.harness.simulated.loop import SimLoop
from tests.sim.kv import SimKv
from threefs.env.random import RANDOM
from threefs.errors import Conflict, InvalidArgument, TooLarge, TooOld
from threefs.kv import retry
from threefs.kv.engine_api import MAX_TRANSACTION_KEYS, Engine, Transaction
from threefs.kv.etcd import EtcdEngine
from threefs.kv.memory import MemoryEngine
from threefs.kv.postgres import PostgresEngine
from threefs.kv.rocks import RocksEngine

Body = Callable[[Engine, SteppedClock], Awaitable[None]]


@pytest.fixture(params=["memory", "rocks", "sim", "etcd", "postgres"])
def check(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Body], None]:
    """Runs an async test body with a fresh engine of each kind."""

    loop = SimLoop()
    server = request.getfixturevalue(request.param) if request.param in ("etcd", "postgres") else None

    @asynccontextmanager
    async def opened(clock: SteppedClock) -> AsyncIterator[Engine]:
        engine: Engine
        if request.param == "memory":
            engine = MemoryEngine(clock=clock)
        elif request.param == "sim":
            engine = SimKv(loop, SeededRandom(1), clock)
        elif isinstance(server, EtcdCluster):
            engine = await EtcdEngine.open(server.addresses, name=RANDOM.token(4).hex(), clock=clock)
        elif isinstance(server, PostgresServer):
            engine = await PostgresEngine.open(server.schema(RANDOM.token(4).hex()), clock=clock)
        else:
            engine = await RocksEngine.open(tmp_path / "store", clock=clock)
        try:
            yield engine
        finally:
            await engine.close()

    def run(body: Body) -> None:
        async def main() -> None:
            clock = SteppedClock()
            async with opened(clock) as engine:
                await body(engine, clock)

        if request.param == "sim":
            loop.run(main())
        else:
            asyncio.run(main())

    return run


async def put(engine: Engine, **pairs: str) -> None:
    tx = engine.begin()
    for key, value in pairs.items():
        tx.set(key.encode(), value.encode())
    await tx.commit()


async def begun(engine: Engine) -> Transaction:
    """A transaction whose state is fixed: stores that are far away fix it at the first read."""
    tx = engine.begin()
    await tx.get(b"\xfe", snapshot=True)
    return tx


async def everything(engine: Engine) -> dict[str, str]:
    pairs = await engine.begin().get_range(b"", b"\xff")
    return {key.decode(): value.decode() for key, value in pairs}


def test_what_was_written_since_a_savepoint_can_be_taken_back(check: Callable[[Body], None]) -> None:
    async def body(engine: Engine, clock: SteppedClock) -> None:
        await put(engine, a="1", b="2")
        tx = engine.begin()
        tx.set(b"a", b"3")
        tx.savepoint()
        tx.set(b"a", b"4")
        tx.clear(b"a")
        tx.clear(b"b")
        tx.set(b"c", b"5")
        tx.rollback()
        assert await tx.get_range(b"", b"\xff") == [(b"a", b"3"), (b"b", b"2")]
        tx.set(b"d", b"6")
        tx.rollback()
        tx.set(b"e", b"7")
        tx.savepoint()
        tx.rollback()
        await tx.commit()
        assert await everything(engine) == {"a": "3", "b": "2", "e": "7"}

    check(body)


def test_a_committed_value_is_read_back(check: Callable[[Body], None]) -> None:
    async def body(engine: Engine, clock: SteppedClock) -> None:
        await put(engine, a="1", b="2")
        tx = engine.begin()
        assert await tx.get(b"a") == b"1"
        assert await tx.get(b"c") is None
        assert await tx.get_many([b"b", b"c", b"a"]) == [b"2", None, b"1"]
        await tx.commit()

    check(body)


def test_of_many_keys_those_written_before_are_as_written(check: Callable[[Body], None]) -> None:
    async def body(engine: Engine, clock: SteppedClock) -> None:
        await put(engine, a="1", b="2", c="3")
        tx = engine.begin()
        tx.set(b"b", b"new")
        tx.clear(b"c")
        assert await tx.get_many([b"a", b"d"]) == [b"1", None]
        assert await tx.get_many([b"a", b"b", b"c"]) == [b"1", b"new", None]

    check(body)


def test_an_uncommitted_value_is_seen_by_no_other_transaction(check: Callable[[Body], None]) -> None:
    async def body(engine: Engine, clock: SteppedClock) -> None:
        tx = engine.begin()
        tx.set(b"a", b"1")
        assert await everything(engine) == {}
        assert await tx.get(b"a") == b"1"

    check(body)


def test_empty_values_and_odd_keys_are_kept(check: Callable[[Body], None]) -> None:
    async def body(engine: Engine, clock: SteppedClock) -> None:
        keys = [b"", b"\0", b"\0\0", b"a", b"a\0", b"a\xff", b"\xff", b"\xff\xff"]
        tx = engine.begin()
        for key in keys:
            tx.set(key, b"")
        await tx.commit()
        tx = engine.begin()
        assert await tx.get_range(b"", b"\xff\xff\xff") == [(key, b"") for key in keys]
        assert await tx.get_range(b"a", b"a\0") == [(b"a", b"")]

    check(body)


def test_ranges_run_in_key_order_in_both_directions_and_stop_at_the_limit(check: Callable[[Body], None]) -> None:
    async def body(engine: Engine, clock: SteppedClock) -> None:
        await put(engine, a="1", b="2", c="3", d="4")
        tx = engine.begin()
        assert [k for k, _ in await tx.get_range(b"b", b"d")] == [b"b", b"c"]
        assert [k for k, _ in await tx.get_range(b"b", b"d", reverse=True)] == [b"c", b"b"]
        assert [k for k, _ in await tx.get_range(b"a", b"z", limit=2)] == [b"a", b"b"]
        assert [k for k, _ in await tx.get_range(b"a", b"z", limit=2, reverse=True)] == [b"d", b"c"]
        assert await tx.get_range(b"d", b"b") == []
        assert await tx.get_range(b"b", b"b") == []
        with pytest.raises(InvalidArgument):
            await tx.get_range(b"a", b"z", limit=-1)

    check(body)


def test_ranges_show_own_writes(check: Callable[[Body], None]) -> None:
    async def body(engine: Engine, clock: SteppedClock) -> None:
        await put(engine, a="1", b="2", c="3", d="4")
        tx = engine.begin()
        tx.clear(b"a")
        tx.set(b"bb", b"5")
        tx.set(b"c", b"6")
        assert await tx.get_range(b"a", b"z") == [(b"b", b"2"), (b"bb", b"5"), (b"c", b"6"), (b"d", b"4")]
        assert await tx.get_range(b"a", b"z", limit=1) == [(b"b", b"2")]
        assert await tx.get_range(b"a", b"z", limit=2, reverse=True) == [(b"d", b"4"), (b"c", b"6")]

    check(body)


def test_reads_show_the_state_at_the_beginning(check: Callable[[Body], None]) -> None:
    async def body(engine: Engine, clock: SteppedClock) -> None:
        await put(engine, a="1", b="2")
        tx = await begun(engine)
        await put(engine, a="9", c="9")
        remove = engine.begin()
        remove.clear(b"b")
        await remove.commit()
        assert await tx.get(b"a", snapshot=True) == b"1"
        assert await tx.get_range(b"a", b"z", snapshot=True) == [(b"a", b"1"), (b"b", b"2")]
        await tx.commit()
        assert await everything(engine) == {"a": "9", "c": "9"}

    check(body)


@pytest.mark.parametrize("read", ["get", "range", "point conflict", "range conflict"])
def test_a_change_of_what_was_read_is_a_conflict(check: Callable[[Body], None], read: str) -> None:
    async def body(engine: Engine, clock: SteppedClock) -> None:
        await put(engine, m="1")
        tx = await begun(engine)
        if read == "get":
            await tx.get(b"m")
        elif read == "range":
            await tx.get_range(b"a", b"z")
        elif read == "point conflict":
            tx.add_read_conflict(b"m")
        else:
            tx.add_read_conflict_range(b"a", b"z")
        tx.set(b"other", b"1")
        await put(engine, m="2")
        with pytest.raises(Conflict):
            await tx.commit()
        assert await everything(engine) == {"m": "2"}

    check(body)


def test_a_key_that_appears_in_a_read_range_is_a_conflict(check: Callable[[Body], None]) -> None:
    async def body(engine: Engine, clock: SteppedClock) -> None:
        tx = engine.begin()
        assert await tx.get_range(b"a", b"n") == []
        tx.set(b"x", b"1")
        await put(engine, m="1")
        with pytest.raises(Conflict):
            await tx.commit()

    check(body)


def test_a_key_that_vanishes_from_a_read_range_is_a_conflict(check: Callable[[Body], None]) -> None:
    async def body(engine: Engine, clock: SteppedClock) -> None:
        await put(engine, l="1", m="2")
        tx = engine.begin()
        assert len(await tx.get_range(b"a", b"n")) == 2
        tx.set(b"x", b"1")
        remove = engine.begin()
        remove.clear(b"m")
        await remove.commit()
        with pytest.raises(Conflict):
            await tx.commit()

    check(body)


def test_a_limited_range_conflicts_only_up_to_where_it_looked(check: Callable[[Body], None]) -> None:
    async def body(engine: Engine, clock: SteppedClock) -> None:
        await put(engine, a="1", b="2", y="3")
        for reverse, free, taken in [(False, "c", "aa"), (True, "x", "z")]:
            tx = engine.begin()
            await tx.get_range(b"a", b"zz", limit=1, reverse=reverse)
            tx.set(b"zzz", b"1")
            await put(engine, **{free: "1"})
            await tx.commit()
            tx = engine.begin()
            await tx.get_range(b"a", b"zz", limit=2, reverse=reverse)
            tx.set(b"zzz", b"1")
            await put(engine, **{taken: "1"})
            with pytest.raises(Conflict):
                await tx.commit()

    check(body)


def test_snapshot_reads_and_blind_writes_do_not_conflict(check: Callable[[Body], None]) -> None:
    async def body(engine: Engine, clock: SteppedClock) -> None:
        await put(engine, m="1")
        tx = engine.begin()
        await tx.get(b"m", snapshot=True)
        await tx.get_range(b"a", b"z", snapshot=True)
        tx.set(b"m", b"3")
        await put(engine, m="2")
        await tx.commit()
        assert await everything(engine) == {"m": "3"}

    check(body)


def test_a_read_only_transaction_never_conflicts(check: Callable[[Body], None]) -> None:
    async def body(engine: Engine, clock: SteppedClock) -> None:
        tx = engine.begin()
        await tx.get(b"m")
        await put(engine, m="2")
        await tx.confirm()
        await tx.commit()

    check(body)


def test_clear_range_removes_at_most_the_given_number(check: Callable[[Body], None]) -> None:
    async def body(engine: Engine, clock: SteppedClock) -> None:
        await put(engine, a="1", b="2", c="3", x="4")
        tx = engine.begin()
        assert await tx.clear_range(b"a", b"d", max_keys=2) is False
        await tx.commit()
        assert await everything(engine) == {"c": "3", "x": "4"}
        tx = engine.begin()
        assert await tx.clear_range(b"a", b"d", max_keys=1) is True
        await tx.commit()
        assert await everything(engine) == {"x": "4"}
        with pytest.raises(InvalidArgument):
            await tx.clear_range(b"a", b"d", max_keys=0)

    check(body)


def test_limits(check: Callable[[Body], None]) -> None:
    async def body(engine: Engine, clock: SteppedClock) -> None:
        tx = engine.begin()
        tx.set(b"k" * 10_000, b"v" * 100_000)
        with pytest.raises(TooLarge, match="10001"):
            tx.set(b"k" * 10_001, b"")
        with pytest.raises(TooLarge, match="10001"):
            tx.clear(b"k" * 10_001)
        with pytest.raises(TooLarge, match="100001"):
            tx.set(b"k", b"v" * 100_001)
        await tx.commit()
        tx = engine.begin()
        for number in range(10):
            tx.set(b"%d" % number, b"v" * 100_000)
        with pytest.raises(TooLarge, match="1000010"):
            await tx.commit()
        assert len(await engine.begin().get_range(b"", b"\xff")) == 1

    check(body)


def test_the_largest_number_of_keys_goes_through_and_one_more_is_refused(check: Callable[[Body], None]) -> None:
    async def body(engine: Engine, clock: SteppedClock) -> None:
        keys = [b"%05d" % number for number in range(MAX_TRANSACTION_KEYS + 1)]
        for count in (MAX_TRANSACTION_KEYS, MAX_TRANSACTION_KEYS + 1):
            tx = engine.begin()
            await tx.get_many(keys[:MAX_TRANSACTION_KEYS])
            for key in keys[:count]:
                tx.set(key, b"%d" % count)
            if count <= MAX_TRANSACTION_KEYS:
                await tx.commit()
            else:
                with pytest.raises(TooLarge, match=str(count)):
                    await tx.commit()
        found = await engine.begin().get_range(b"", b"\xff")
        assert [key for key, _ in found] == keys[:-1] and {value for _, value in found} == {b"8000"}

    check(body)


def test_an_old_transaction_ends(check: Callable[[Body], None]) -> None:
    async def body(engine: Engine, clock: SteppedClock) -> None:
        tx, writer = engine.begin(), engine.begin()
        writer.set(b"a", b"1")
        clock.advance(5.1)
        with pytest.raises(TooOld):
            await tx.get(b"a")
        with pytest.raises(TooOld):
            await writer.commit()
        assert await everything(engine) == {}

    check(body)


def test_the_history_of_old_commits_is_forgotten_without_harm(check: Callable[[Body], None]) -> None:
    async def body(engine: Engine, clock: SteppedClock) -> None:
        for number in range(260):
            await put(engine, a=str(number))
            clock.advance(0.1)
        tx = engine.begin()
        assert await tx.get(b"a") == b"259"
        await put(engine, a="260")
        tx.set(b"b", b"1")
        with pytest.raises(Conflict):
            await tx.commit()

    check(body)


def test_concurrent_increments_are_all_counted(check: Callable[[Body], None]) -> None:
    async def body(engine: Engine, clock: SteppedClock) -> None:
        async def increment(tx: Transaction) -> None:
            tx.set(b"n", b"%d" % (int(await tx.get(b"n") or 0) + 1))

        await asyncio.gather(*(retry.run(engine, increment, timeout_s=60.0) for _ in range(16)))
        assert await everything(engine) == {"n": "16"}

    check(body)


def test_concurrent_transactions_do_not_miss_each_other(check: Callable[[Body], None]) -> None:
    """Each reads both keys and removes its own if the other is there: one has to stay."""

    async def body(engine: Engine, clock: SteppedClock) -> None:
        async def leave(own: bytes) -> None:
            async def step(tx: Transaction) -> None:
                if len(await tx.get_range(b"a", b"c")) == 2:
                    tx.clear(own)

            await retry.run(engine, step, timeout_s=60.0)

        for _ in range(20):
            await put(engine, a="1", b="1")
            await asyncio.gather(leave(b"a"), leave(b"b"))
            assert len(await everything(engine)) == 1

    check(body)
