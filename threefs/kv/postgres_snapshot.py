"""One state of a PostgreSQL database: a transaction that is open there as long as the snapshot exists."""

import asyncio
from collections.abc import Sequence
from typing import Any

import psycopg

from threefs.errors import ThreefsError, TooOld, Unavailable
from threefs.kv.postgres_connections import CALL_S, Connection, Connections, error_of
from threefs.kv.remote_transaction import Row

_PAGE = 1000
_TRIES = 3

_BEGIN = "BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY"
_ONE = "SELECT key, value, version FROM threefs_kv WHERE key = %b"
_MANY = "SELECT key, value, version FROM threefs_kv WHERE key = ANY (%b::bytea[])"
_SCAN = "SELECT key, value, version FROM threefs_kv WHERE key >= %b AND key < %b ORDER BY key LIMIT %b"
_SCAN_BACK = "SELECT key, value, version FROM threefs_kv WHERE key >= %b AND key < %b ORDER BY key DESC LIMIT %b"


class PostgresSnapshot:
    """The state at the first read."""

    def __init__(self, connections: Connections) -> None:
        self.has_read = False
        self._connections = connections
        self._connection: Connection | None = None

    def __del__(self) -> None:
        self.drop()

    def drop(self) -> None:
        """End the transaction, and give its connection back."""
        connection = self.detach()
        if connection is not None:
            self._connections.release(connection)

    async def fetch(self, keys: Sequence[bytes]) -> list[Row]:
        if len(keys) == 1:
            return await self._rows(_ONE, (keys[0],))
        return await self._rows(_MANY, (list(keys),))

    async def scan(self, begin: bytes, end: bytes, limit: int, reverse: bool) -> list[Row]:
        rows: list[Row] = []
        while True:
            count = min(limit - len(rows), _PAGE) if limit else _PAGE
            found = await self._rows(_SCAN_BACK if reverse else _SCAN, (begin, end, count))
            rows += found
            if len(found) < count or len(rows) == limit:
                return rows
            last = rows[-1][0]
            begin, end = (begin, last) if reverse else (last + b"\0", end)

    async def finish(self) -> None:
        """Commit the transaction. Raises Conflict if PostgreSQL cannot order it among the changes of others."""
        connection = self._connection
        if connection is not None:
            await self._run(connection, "COMMIT")
            self.detach()
            self._connections.release(connection)

    def detach(self) -> Connection | None:
        """Hand the connection over to the caller; None if there is none."""
        connection, self._connection = self._connection, None
        return connection

    async def _rows(self, statement: str, values: Sequence[Any]) -> list[Row]:
        if self._connection is not None:
            return await self._run(self._connection, statement, values)
        if self.has_read:
            raise TooOld("the connection to PostgreSQL was lost, and with it the state that was read; begin again")
        for tries in range(_TRIES):
            connection = self._connection = await self._connections.take()
            try:
                rows = await self._run(connection, statement, values, first=True)
            except Unavailable:  # it may have been idle for long, and nothing was read yet
                if tries == _TRIES - 1:
                    raise
                continue
            self.has_read = True
            return rows
        raise AssertionError("the last try returns or raises")

    async def _run(
        self, connection: Connection, statement: str, values: Sequence[Any] = (), first: bool = False
    ) -> list[Row]:
        try:
            async with asyncio.timeout(CALL_S):
                if not first:
                    cursor = await connection.execute(statement, values, binary=True)
                else:
                    async with connection.pipeline():
                        await connection.execute(_BEGIN)
                        cursor = await connection.execute(statement, values, binary=True)
                return await cursor.fetchall() if cursor.description else []
        except (psycopg.Error, TimeoutError) as error:
            raise await self._lost(error_of(error)) from None
        except BaseException:  # cancelled in the middle of an answer
            await self._lost(Unavailable())
            raise

    async def _lost(self, failure: ThreefsError) -> ThreefsError:
        """Give the connection back, or discard it. Returns the error to raise."""
        connection = self.detach()
        assert connection is not None
        if not isinstance(failure, Unavailable):
            self._connections.release(connection)
            return failure
        await self._connections.discard(connection)
        return TooOld(f"{failure}; begin the transaction again") if self.has_read else failure
