"""What the contract suite does not ask: versions, PostgreSQL's own limits, transactions that it cannot order."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator

import psycopg
import pytest

from tests.harness.postgres import PostgresServer
from threefs.env.random import RANDOM
from threefs.errors import Conflict, InvalidSettings, NotAuthorised, TooLarge
from threefs.kv import retry
from threefs.kv.engine_api import Transaction
from threefs.kv.postgres import PostgresEngine


@contextlib.asynccontextmanager
async def opened(url: str) -> AsyncIterator[PostgresEngine]:
    engine = await PostgresEngine.open(url)
    try:
        yield engine
    finally:
        await engine.close()


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    return postgres.schema(RANDOM.token(4).hex())


async def put(engine: PostgresEngine, *keys: bytes) -> None:
    tx = engine.begin()
    for key in keys:
        tx.set(key, b"v")
    await tx.commit()


async def test_two_programs_may_make_the_table_at_once(url: str) -> None:
    engines = await asyncio.gather(*(PostgresEngine.open(url) for _ in range(4)))
    await put(engines[0], b"a")
    assert await engines[1].begin().get(b"a") == b"v"
    await asyncio.gather(*(engine.close() for engine in engines))


async def test_a_range_whose_rows_were_replaced_by_as_many_others_has_changed(url: str) -> None:
    async with opened(url) as engine:
        await put(engine, b"a", b"b")
        tx = engine.begin()
        assert len(await tx.get_range(b"a", b"z")) == 2
        other = engine.begin()
        for key in (b"a", b"b"):
            other.clear(key)
        for key in (b"c", b"d"):
            other.set(key, b"v")
        await other.commit()
        tx.set(b"zz", b"1")
        with pytest.raises(Conflict):
            await tx.commit()


async def test_changes_of_neighbouring_keys_are_all_made_in_the_end(url: str) -> None:
    """PostgreSQL sees conflicts between them where there are none; nobody else hears of it."""

    async with opened(url) as engine:

        async def add(number: int) -> None:
            async def step(tx: Transaction) -> None:
                assert await tx.get(b"key%d" % number) is None
                tx.set(b"key%d" % number, b"v")
                tx.set(b"time", b"%d" % number)  # seen by nobody, written by all

            await retry.run(engine, step, timeout_s=60.0)

        await asyncio.gather(*(add(number) for number in range(60)))
        assert len(await engine.begin().get_range(b"key", b"kez")) == 60


async def test_a_key_that_cannot_be_indexed_says_so(url: str) -> None:
    async with opened(url) as engine:
        tx = engine.begin()
        tx.set(os.urandom(9000), b"v")
        with pytest.raises(TooLarge, match=r"2,700 bytes"):
            await tx.commit()


async def test_values_and_long_ranges_come_back_as_they_were(url: str) -> None:
    async with opened(url) as engine:
        tx = engine.begin()
        value = os.urandom(100_000)
        tx.set(b"large", value)
        for number in range(2500):
            tx.set(b"n%04d" % number, b"")
        await tx.commit()
        tx = engine.begin()
        assert await tx.get(b"large") == value
        assert len(await tx.get_range(b"n", b"o")) == 2500
        assert [key for key, _ in await tx.get_range(b"n", b"o", limit=1500, reverse=True)][-1] == b"n1000"


async def test_a_reader_may_take_its_time(url: str) -> None:
    async with opened(url) as engine:
        await put(engine, b"a")
        tx = engine.begin(lifetime_s=3600.0)
        assert await tx.get_range(b"", b"z", snapshot=True) == [(b"a", b"v")]
        await put(engine, b"b")
        assert await tx.get_range(b"", b"z", snapshot=True) == [(b"a", b"v")]
        await tx.confirm()


async def test_a_user_without_rights_gets_an_error(url: str, postgres: PostgresServer) -> None:
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("CREATE ROLE stranger LOGIN")
        schema = url.rpartition("%3D")[2]

    with pytest.raises(InvalidSettings, match="no schema"):
        await PostgresEngine.open(url.replace("//threefs@", "//stranger@"))
    async with await psycopg.AsyncConnection.connect(postgres.url, autocommit=True) as connection:
        await connection.execute(f'GRANT USAGE ON SCHEMA "{schema}" TO stranger'.encode())
    with pytest.raises(NotAuthorised, match="permission denied"):
        await PostgresEngine.open(url.replace("//threefs@", "//stranger@"))
