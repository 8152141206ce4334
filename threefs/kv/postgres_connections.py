"""Connections to a PostgreSQL server: a bounded number, opened when needed, each used by one transaction at a time."""

import asyncio
import contextlib
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from threefs.background import BackgroundTasks
from threefs.env.clock import CLOCK, Clock
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
from threefs.telemetry.library_logging import LibraryLogger

MAX_CONNECTIONS = 24  # the server's own default is 100 for all
MAX_CONNECT_S = 5.0  # until a connection is free, and until it is open
CALL_S = 10.0  # after which a server counts as hung
_STATEMENT_MS = 5_000
_PAUSE_S = 0.1

#: A plan that reads the whole table would conflict with every writer. Without synchronous_commit, acknowledged commits
#: could be lost.
_SESSION = f"""
SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_bitmapscan = off;
SET default_transaction_isolation = 'serializable'; SET jit = off;
SET statement_timeout = {_STATEMENT_MS}; SET idle_in_transaction_session_timeout = 10000;
SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off';
"""

_LOG = LibraryLogger(__name__)


class Connection(psycopg.AsyncConnection[Any]):
    """A connection that is closed when a call on it is interrupted.

    psycopg would ask the server to cancel the statement. PostgreSQL takes that as permission to do without the
    synchronous standby that a commit waits for: a repeat would find the change, and report it as made.
    """

    async def cancel_safe(self, *, timeout: float = 30.0) -> None:  # noqa: ASYNC109 (of psycopg)
        self.pgconn.finish()
        raise asyncio.CancelledError  # psycopg would wait for the end of the statement


class Connections:
    """The connections of one engine, at most `most`."""

    def __init__(self, conninfo: str, *, most: int = MAX_CONNECTIONS, clock: Clock = CLOCK) -> None:
        self._conninfo = conninfo
        self._clock = clock
        self._slots = asyncio.Semaphore(most)
        self._idle: list[Connection] = []
        self._all: set[Connection] = set()
        self._cleaning = BackgroundTasks()
        self._closed = False

    async def close(self) -> None:
        self._closed = True
        await self._cleaning.join()
        for connection in list(self._all):
            await self._end(connection)

    async def take(self) -> Connection:
        """A connection, which the caller has to `release` or to `discard`. Raises Throttled, Unavailable,
        NotAuthorised."""
        assert not self._closed, "the engine is closed"
        try:
            async with asyncio.timeout(MAX_CONNECT_S):
                await self._slots.acquire()
        except TimeoutError:
            raise Throttled(f"no connection to PostgreSQL became free within {MAX_CONNECT_S:g} s") from None
        try:
            return self._idle.pop() if self._idle else await self._connect()
        except BaseException:
            self._slots.release()
            raise

    async def _connect(self) -> Connection:
        deadline = self._clock.monotonic() + MAX_CONNECT_S
        while True:
            try:
                async with asyncio.timeout(CALL_S):
                    # No statement is prepared: a failure within a pipeline would leave names of statements that do not
                    # exist.
                    connection = await Connection.connect(self._conninfo, autocommit=True, prepare_threshold=None)
                    self._all.add(connection)
                    try:
                        await connection.execute(_SESSION)
                    except BaseException:  # cancelled, or timed out: no other code would close it
                        await self._end(connection)
                        raise
                return connection
            except (psycopg.Error, TimeoutError) as error:
                failure = error_of(error)
            if not isinstance(failure, Unavailable | Throttled) or self._clock.monotonic() >= deadline:
                raise failure
            await self._clock.sleep(_PAUSE_S)

    def release(self, connection: Connection) -> None:
        """Give a connection back. If it is in a transaction, that is rolled back. Garbage collection may call this."""
        if connection.closed or self._closed:
            self._slots.release()  # `close` closes the others
        elif connection.info.transaction_status is TransactionStatus.IDLE:
            self._idle.append(connection)
            self._slots.release()
        else:
            with contextlib.suppress(RuntimeError):  # without a loop the program is at its end
                asyncio.get_running_loop()
                self._cleaning.attempt("rollback of a connection", self._clean(connection))

    async def _clean(self, connection: Connection) -> None:
        try:
            async with asyncio.timeout(CALL_S):
                await connection.execute("ROLLBACK")
        except (psycopg.Error, TimeoutError) as error:
            _LOG.debug("a connection to PostgreSQL ended", error=str(error))
            await self.discard(connection)
            return
        self._idle.append(connection)
        self._slots.release()

    async def discard(self, connection: Connection) -> None:
        """Close a broken connection, and all idle ones, which are probably broken as well."""
        idle, self._idle = self._idle, []
        self._slots.release()
        for other in (connection, *idle):
            await self._end(other)

    async def _end(self, connection: Connection) -> None:
        self._all.discard(connection)
        with contextlib.suppress(psycopg.Error):
            await connection.close()


def error_of(error: psycopg.Error | TimeoutError) -> ThreefsError:
    """The error of threefs for an error of PostgreSQL. Unavailable: the connection cannot be used any more."""
    if isinstance(error, TimeoutError):
        return Unavailable(f"PostgreSQL has not answered within {CALL_S:g} s")
    state, text = error.sqlstate or "", str(error).strip().partition("\n")[0]
    said = f"PostgreSQL: {text or type(error).__name__}"
    if state in ("40001", "40P01"):
        return Conflict(said)
    if state == "54000":
        return TooLarge(f"{said}; PostgreSQL indexes keys of up to about 2,700 bytes")
    if state == "53100":
        return NoSpace(said)
    if state in ("53200", "53300", "53400", "57014", "55P03"):
        return Throttled(said)
    if state.startswith("28") or state == "42501" or "authentication failed" in text:
        return NotAuthorised(said)
    if state in ("3D000", "3F000") or ("database" in text and "does not exist" in text):
        return InvalidSettings(said)
    if state in ("XX001", "XX002"):
        return Corrupt(said)
    if not state or state[:2] in ("08", "57", "25"):
        return Unavailable(said)
    return ThreefsError(f"{said} ({state})")
