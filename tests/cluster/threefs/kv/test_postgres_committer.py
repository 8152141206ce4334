import asyncio
import os
from collections import deque
from pathlib import Path

import pytest
from psycopg.pq import Trace

from tests.harness.postgres import PostgresServer
from threefs.env.random import RANDOM
from threefs.errors import Conflict, InvalidSettings, TooLarge
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
