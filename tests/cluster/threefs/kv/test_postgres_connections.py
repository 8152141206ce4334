import asyncio

import psycopg
import pytest
from psycopg import errors
from psycopg.pq import TransactionStatus

from tests.harness.clocks import SteppedClock
from tests.harness.postgres import PostgresServer
from tests.harness.processes import free_port
from threefs.errors import (
    Conflict,
    Corrupt,
    InvalidSettings,
    NoSpace,
    NotAuthorised,
    ThreefsError,
    Throttled,
    TooLarge,
    Unavailable,
)
from threefs.kv import postgres_connections
from threefs.kv.postgres_connections import Connections, error_of


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (errors.SerializationFailure("could not serialize access"), Conflict),
        (errors.DeadlockDetected("deadlock detected"), Conflict),
        (errors.ProgramLimitExceeded("index row size 9024 exceeds maximum"), TooLarge),
        (errors.DiskFull("could not extend file"), NoSpace),
        (errors.TooManyConnections("sorry, too many clients already"), Throttled),
        (errors.QueryCanceled("canceling statement due to statement timeout"), Throttled),
        (errors.InsufficientPrivilege("permission denied for table"), NotAuthorised),
        (errors.InvalidPassword("password authentication failed"), NotAuthorised),
        (errors.InvalidCatalogName('database "x" does not exist'), InvalidSettings),
        (errors.DataCorrupted("invalid page in block 0"), Corrupt),
        (errors.AdminShutdown("terminating connection"), Unavailable),
        (errors.CannotConnectNow("the database system is in recovery mode"), Unavailable),
        (errors.ReadOnlySqlTransaction("cannot execute INSERT in a read-only transaction"), Unavailable),
        (psycopg.OperationalError("server closed the connection unexpectedly"), Unavailable),
        (TimeoutError(), Unavailable),
        (errors.SyntaxError("syntax error"), ThreefsError),
    ],
)
def test_each_answer_has_its_error(error: psycopg.Error | TimeoutError, kind: type[ThreefsError]) -> None:
    found = error_of(error)
    assert type(found) is kind
    assert "PostgreSQL" in str(found) and str(error) in str(found)


async def test_connections_are_bounded_and_used_again(postgres: PostgresServer) -> None:
    connections = Connections(postgres.url, most=2)
    first, second = await connections.take(), await connections.take()
    waiting = asyncio.ensure_future(connections.take())
    await asyncio.sleep(0.01)
    assert not waiting.done()
    await first.execute("BEGIN")
    connections.release(first)
    third = await waiting
    assert third is first
    assert third.info.transaction_status is TransactionStatus.IDLE, "nothing of the one before is left"
    connections.release(second)
    connections.release(third)
    await connections.close()


async def test_a_connection_that_was_given_up_makes_room(postgres: PostgresServer) -> None:
    connections = Connections(postgres.url, most=1)
    first = await connections.take()
    await connections.discard(first)
    second = await connections.take()
    assert first.closed and not second.closed
    connections.release(second)
    await connections.close()
    assert second.closed


async def test_a_missing_server_and_a_missing_database_are_reported(postgres: PostgresServer) -> None:
    nobody = Connections(f"postgresql://u:secret@127.0.0.1:{free_port()}/x", clock=SteppedClock())
    with pytest.raises(Unavailable) as caught:
        await nobody.take()
    assert "secret" not in str(caught.value)
    with pytest.raises(InvalidSettings, match="nosuch"):
        await Connections(postgres.url.replace("/postgres", "/nosuch")).take()


@pytest.mark.parametrize("how", ["cancelled", "out of time"])
async def test_a_connection_whose_session_does_not_begin_is_ended(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Each stayed open at the server as long as the program lived, beside the bound."""
    session = postgres_connections._SESSION
    monkeypatch.setattr(postgres_connections, "_SESSION", "SELECT pg_sleep(60)")
    if how == "out of time":
        monkeypatch.setattr(postgres_connections, "CALL_S", 0.3)
        monkeypatch.setattr(postgres_connections, "MAX_CONNECT_S", 0.5)

    connections = Connections(postgres.url, most=2)
    for _ in range(4):
        taking = asyncio.ensure_future(connections.take())
        while not connections._all and not taking.done():
            await asyncio.sleep(0.01)
        if how == "cancelled":
            taking.cancel()
        with pytest.raises((asyncio.CancelledError, Unavailable)):
            await taking
        assert not connections._all
    monkeypatch.setattr(postgres_connections, "_SESSION", session)
    monkeypatch.setattr(postgres_connections, "CALL_S", 10.0)
    for taken in [await connections.take(), await connections.take()]:
        connections.release(taken)
    await connections.close()
