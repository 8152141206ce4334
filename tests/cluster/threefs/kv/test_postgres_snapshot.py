import asyncio
import gc

import psycopg
import pytest

from tests.harness.postgres import PostgresServer
from threefs.background import cancel_and_wait
from threefs.env.random import RANDOM
from threefs.errors import TooOld
from threefs.kv.postgres import PostgresEngine
from threefs.kv.postgres_connections import MAX_CONNECTIONS
from threefs.kv.postgres_snapshot import PostgresSnapshot


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    return postgres.schema(RANDOM.token(4).hex())


async def end_connection(engine: PostgresEngine, url: str, reading: PostgresSnapshot) -> None:
    """As when the server's process for it dies, but for this one only."""
    assert reading._connection is not None
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as other:
        await other.execute("SELECT pg_terminate_backend(%s, 5000)", (reading._connection.info.backend_pid,))


async def test_a_transaction_that_is_never_ended_gives_its_connection_back(url: str) -> None:
    engine = await PostgresEngine.open(url)
    for _ in range(3 * MAX_CONNECTIONS):
        await engine.begin().get(b"a")
    gc.collect()
    held = [engine.begin() for _ in range(MAX_CONNECTIONS)]
    await asyncio.gather(*(tx.get(b"a") for tx in held))
    await engine.close()


async def test_a_state_that_was_lost_is_too_old(url: str) -> None:
    engine = await PostgresEngine.open(url)
    tx = engine.begin()
    await tx.get(b"a")
    assert isinstance(tx.snapshot, PostgresSnapshot)
    await end_connection(engine, url, tx.snapshot)
    for key in (b"b", b"c"):
        with pytest.raises(TooOld, match="PostgreSQL"):
            await tx.get(key)
    assert await engine.begin().get(b"a") is None
    await engine.close()


async def test_connections_that_died_unused_are_replaced_unseen(url: str) -> None:
    engine = await PostgresEngine.open(url)
    tx = engine.begin()
    await tx.get(b"a")
    assert isinstance(tx.snapshot, PostgresSnapshot)
    reading = tx.snapshot
    backend = reading._connection
    await tx.commit()
    assert backend is not None
    reading._connection = backend
    await end_connection(engine, url, reading)
    reading.detach()
    assert await engine.begin().get(b"a") is None
    await engine.close()


async def test_a_call_that_is_cancelled_in_a_read_leaves_no_answer_to_others(url: str) -> None:
    engine = await PostgresEngine.open(url)
    tx = engine.begin()
    tx.set(b"a", b"1")
    await tx.commit()
    for _ in range(20):
        reading = asyncio.ensure_future(engine.begin().get(b"b"))
        await asyncio.sleep(0.001)
        await cancel_and_wait(reading)
        assert await engine.begin().get(b"a") == b"1"
    await engine.close()
