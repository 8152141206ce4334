import asyncio
import contextlib
import itertools
import os
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path

import psycopg
import pytest
from psycopg.pq import Trace

from tests.harness.postgres import PostgresServer
from threefs.background import cancel_and_wait
from threefs.env.random import RANDOM
from threefs.errors import Conflict, InvalidSettings, MaybeCommitted, Throttled, TooLarge, Unavailable
from threefs.kv import postgres_committer, retry
from threefs.kv.engine_api import Transaction
from threefs.kv.postgres import PostgresEngine
from threefs.kv.postgres_committer import MAX_BATCH, Commit, next_batch
from threefs.kv.remote_transaction import RemoteTransaction, Scan


def commit(
    *, reads: bytes = b"", scan: tuple[bytes, bytes] | None = None, writes: bytes = b"", size: int = 1
) -> Commit:
    end: asyncio.Future[None] = asyncio.Future(loop=asyncio.new_event_loop())
    end.get_loop().close()
    return Commit(
        {bytes((key,)): 1 for key in reads},
        [Scan(*scan, 0, 0)] if scan else [],
        {bytes((key,)): b"v" * size for key in writes},
        end,
    )


@pytest.mark.parametrize(
    ("first", "second", "fit"),
    [
        (commit(writes=b"a"), commit(writes=b"b"), True),
        (commit(writes=b"a"), commit(writes=b"a"), True),
        (commit(reads=b"b", writes=b"a"), commit(writes=b"b"), True),
        (commit(writes=b"a"), commit(reads=b"a", writes=b"b"), False),
        (commit(writes=b"m"), commit(scan=(b"a", b"z"), writes=b"z"), False),
        (commit(writes=b"z"), commit(scan=(b"a", b"z"), writes=b"z"), True),
        (commit(writes=b"a", size=3_000_000), commit(writes=b"b", size=2_000_000), False),
    ],
)
def test_a_transaction_that_has_read_what_another_writes_waits(first: Commit, second: Commit, fit: bool) -> None:
    waiting = deque([first, second])
    assert next_batch(waiting) == ([first, second] if fit else [first])
    assert list(waiting) == ([] if fit else [second])


def test_a_batch_is_bounded() -> None:
    waiting = deque(commit(writes=b"a") for _ in range(MAX_BATCH + 1))
    assert len(next_batch(waiting)) == MAX_BATCH and len(waiting) == 1


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    return postgres.schema(RANDOM.token(4).hex())


async def has_read(engine: PostgresEngine, *keys: bytes) -> RemoteTransaction:
    tx = engine.begin()
    await tx.get_many([*keys, b"none"])
    return tx


async def test_of_those_that_go_together_each_has_its_own_end(url: str) -> None:
    engine = await PostgresEngine.open(url)
    before = engine.begin()
    before.set(b"read", b"1")
    await before.commit()
    stale, fresh, last = await has_read(engine, b"read"), await has_read(engine), await has_read(engine)
    change = engine.begin()
    change.set(b"read", b"2")
    await change.commit()
    fresh.set(b"both", b"fresh")
    fresh.set(b"gone", b"fresh")
    last.set(b"both", b"last")
    last.clear(b"gone")
    stale.set(b"both", b"stale")
    ends = await asyncio.gather(fresh.commit(), last.commit(), stale.commit(), return_exceptions=True)
    assert [type(end) for end in ends] == [type(None), type(None), Conflict]
    assert await engine.begin().get_many([b"both", b"gone", b"read"]) == [b"last", None, b"2"]
    await engine.close()


async def test_one_that_is_too_large_does_not_take_the_others_with_it(url: str) -> None:
    engine = await PostgresEngine.open(url)
    transactions = [engine.begin() for _ in range(3)]
    for number, tx in enumerate(transactions):
        tx.set(os.urandom(9000) if number == 1 else b"%d" % number, b"v")
    ends = await asyncio.gather(*(tx.commit() for tx in transactions), return_exceptions=True)
    assert [type(end) for end in ends] == [type(None), TooLarge, type(None)]
    assert await engine.begin().get_many([b"0", b"2"]) == [b"v", b"v"]
    await engine.close()


async def test_a_cancelled_call_does_not_stop_the_others(url: str) -> None:
    engine = await PostgresEngine.open(url)
    transactions = [engine.begin() for _ in range(10)]
    for number, tx in enumerate(transactions):
        tx.set(b"%d" % number, b"v")
    tasks = [asyncio.ensure_future(tx.commit()) for tx in transactions]
    await asyncio.sleep(0)
    tasks[0].cancel()
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(ends[0], asyncio.CancelledError) and ends[1:] == [None] * 9
    await engine.close()


def test_a_service_that_falls_silent_within_a_commit_delays_no_other(url: str, tmp_path: Path) -> None:
    """Rows are locked from the execution of the statement on, up to the Sync: nothing may have to come in between."""

    async def main() -> list[str]:
        engine = await PostgresEngine.open(url)
        (idle,) = engine._connections._idle
        with (tmp_path / "sent").open("w") as sent:
            idle.pgconn.trace(sent.fileno())
            idle.pgconn.set_trace_flags(Trace.SUPPRESS_TIMESTAMPS)
            tx = engine.begin()
            tx.set(b"a", b"1")
            await tx.commit()
            idle.pgconn.untrace()
        assert await engine.begin().get(b"a") == b"1"
        await engine.close()
        return (tmp_path / "sent").read_text().splitlines()

    sent = [line.split("\t")[2] for line in asyncio.run(main()) if line.startswith("F")]
    assert sent.count("Execute") == sent.count("Sync") == 1
    assert sent[sent.index("Execute") + 1] == "Sync"


async def test_without_the_settings_of_the_session_nothing_is_written(url: str) -> None:
    engine = await PostgresEngine.open(url)
    (idle,) = engine._connections._idle
    await idle.execute("RESET default_transaction_isolation")
    tx = engine.begin()
    tx.set(b"a", b"1")
    with pytest.raises(InvalidSettings):
        await tx.commit()
    assert await engine.begin().get(b"a") is None
    await engine.close()


class AbsentStandby:
    """The standby that commits of this server wait for is away."""

    def __init__(self, administrator: psycopg.AsyncConnection[tuple[int]]) -> None:
        self._administrator = administrator

    async def count_waiting(self) -> int:
        cursor = await self._administrator.execute("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
        row = await cursor.fetchone()
        assert row is not None
        return row[0]

    async def commit(self, engine: PostgresEngine) -> tuple[bytes, asyncio.Future[None]]:
        """A key, and its commit, which waits for the standby. The server may need some time to know that there is
        one."""
        for number in itertools.count():
            tx = engine.begin()
            tx.set(key := b"key%d" % number, b"v")
            commit = asyncio.ensure_future(tx.commit())
            while not commit.done():
                if await self.count_waiting():
                    return key, commit
                await asyncio.sleep(0.01)
        raise AssertionError("without an end")

    async def comes_back(self) -> None:
        await self._administrator.execute("ALTER SYSTEM RESET synchronous_standby_names")
        await self._administrator.execute("SELECT pg_reload_conf()")
        while await self.count_waiting():
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def without_standby(server: PostgresServer) -> AsyncIterator[AbsentStandby]:
    async with await psycopg.AsyncConnection.connect(server.url, autocommit=True) as administrator:
        standby = AbsentStandby(administrator)
        await administrator.execute("ALTER SYSTEM SET synchronous_standby_names = 'nosuch'")
        await administrator.execute("SELECT pg_reload_conf()")
        try:
            yield standby
        finally:
            await standby.comes_back()


async def make_once(tx: Transaction) -> str:
    if await tx.get(b"a") is not None:
        return "an earlier attempt made it"
    tx.set(b"a", b"1")
    return "made"


async def test_a_change_that_the_standby_does_not_have_is_not_acknowledged(
    url: str, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """psycopg had the server cancel the wait for the standby, and the repeat found the change."""
    engine = await PostgresEngine.open(url)
    monkeypatch.setattr(postgres_committer, "CALL_S", 0.5)
    async with without_standby(postgres) as standby:
        key, commit = await standby.commit(engine)
        with pytest.raises(MaybeCommitted):
            await commit
        for _ in range(2):
            with pytest.raises(Throttled, match="standby"):
                await retry.run(engine, make_once, replayable=True, timeout_s=0.5)
        assert await engine.begin().get_many([key, b"a"]) == [None, None], "reads go on, and see none of it"
        assert await standby.count_waiting() == 1, "each that is sent takes a process of the server from the readers"
        await standby.comes_back()
        assert await engine.begin().get(key) == b"v"
        assert await retry.run(engine, make_once, replayable=True) == "made"
        await engine.close()


async def test_a_repeat_does_not_find_a_change_that_the_standby_does_not_have(
    url: str, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, other = await PostgresEngine.open(url), await PostgresEngine.open(url)
    monkeypatch.setattr(postgres_committer, "CALL_S", 0.5)
    async with without_standby(postgres) as standby:
        _, commit = await standby.commit(other)
        with pytest.raises(MaybeCommitted):
            await retry.run(engine, make_once, replayable=True, timeout_s=1.5)
        with pytest.raises(Throttled, match="standby"):
            await retry.run(engine, make_once, replayable=True, timeout_s=1.5)
        with pytest.raises(MaybeCommitted):
            await commit
        await standby.comes_back()
        assert await retry.run(engine, make_once, replayable=True) == "an earlier attempt made it"
        await engine.close()
        await other.close()


async def test_a_change_that_was_not_sent_was_not_made(
    url: str, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The question whether a standby is waited for was not answered, and the change ended with an unknown outcome."""
    engine = await PostgresEngine.open(url)
    monkeypatch.setattr(postgres_committer, "CALL_S", 0.5)
    async with without_standby(postgres) as standby:
        _, commit = await standby.commit(engine)
        with pytest.raises(MaybeCommitted):
            await commit
        left = [*engine._committer._left]
        with monkeypatch.context() as patched:
            patched.setattr(postgres_committer, "_AT_WORK", "SELECT pg_sleep(60), %b::int[]")
            with pytest.raises(Unavailable):
                await retry.run(engine, make_once)
        assert engine._committer._left == left, "whatever did not commit is not waited for"
        await standby.comes_back()
        assert await retry.run(engine, make_once, replayable=True) == "made"
        await engine.close()


async def test_a_commit_that_waits_for_the_standby_late_is_known(
    url: str, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that was at work on something else when it was looked at was forgotten."""
    engine, other = await PostgresEngine.open(url), await PostgresEngine.open(url)
    monkeypatch.setattr(postgres_committer, "CALL_S", 0.5)
    async with await psycopg.AsyncConnection.connect(url) as blocker:
        await blocker.execute("INSERT INTO threefs_kv (key, value, version) VALUES ('late', '', 1)")
        late = engine.begin()
        late.set(b"late", b"v")
        with pytest.raises(MaybeCommitted):
            await late.commit()
        assert await retry.run(engine, make_once, replayable=True) == "made", "a lock is no standby"
        async with without_standby(postgres) as standby:
            _, commit = await standby.commit(other)
            await blocker.rollback()
            while await standby.count_waiting() < 2:
                await asyncio.sleep(0.01)
            change = engine.begin()
            change.set(b"b", b"v")
            with pytest.raises(Throttled, match="standby"):
                await change.commit()
            with pytest.raises(MaybeCommitted):
                await commit
        await engine.close()
        await other.close()


async def test_a_program_that_ends_leaves_the_commit_to_the_standby(url: str, postgres: PostgresServer) -> None:
    engine = await PostgresEngine.open(url)
    async with without_standby(postgres) as standby:
        key, commit = await standby.commit(engine)
        assert engine._committer._task is not None
        await cancel_and_wait(engine._committer._task)
        with pytest.raises(MaybeCommitted):
            await commit
        assert await engine.begin().get(key) is None and await standby.count_waiting() == 1
        await standby.comes_back()
        assert await engine.begin().get(key) == b"v"
        await engine.close()
