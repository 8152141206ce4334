"""The store in a PostgreSQL database: one table of keys, values and versions.

A transaction reads in one of PostgreSQL's, which is read-only and SERIALIZABLE. Its writes wait here, as in every
engine, so that blind writes do not conflict. The commit is one statement in a second SERIALIZABLE transaction: if every
key that was read still has its version, and every range as many keys with the same sum of versions, then write. All
that is judged and all that is written is part of PostgreSQL's own order.

Each commit writes a version drawn at random, so a range that lost some rows and got others does not have the old sum.
Two commits that PostgreSQL cannot put into an order (it looks at pages, not only at keys) are tried again here: nothing
was judged yet.
"""

import asyncio
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from threefs.env.clock import CLOCK, Clock
from threefs.env.random import RANDOM, Random
from threefs.errors import Conflict, MaybeCommitted, ThreefsError, Unavailable
from threefs.kv.port import MAX_TRANSACTION_SECONDS
from threefs.kv.postgres_connections import CALL_S, Connection, Connections, error_of
from threefs.kv.postgres_reading import Reading
from threefs.kv.remote import RemoteTransaction

#: Whoever makes the table holds this lock, so that two programs may start at once.
_MAKING = 0x3F5
_LONGEST_PAUSE_S = 0.05
_FIRST_PAUSE_S = 0.001

_MAKE = f"""
BEGIN;
SELECT pg_advisory_xact_lock({_MAKING});
CREATE TABLE IF NOT EXISTS threefs_kv (
    key bytea PRIMARY KEY,
    value bytea NOT NULL,
    version bigint NOT NULL
) WITH (fillfactor = 80);
ALTER TABLE threefs_kv ALTER value SET STORAGE EXTERNAL;
COMMIT;
"""

_COMMIT = """
WITH good AS MATERIALIZED (
    SELECT
        NOT EXISTS (
            SELECT 1 FROM unnest(%(keys)b::bytea[], %(versions)b::bigint[]) AS was (key, version)
            WHERE coalesce((SELECT kv.version FROM threefs_kv AS kv WHERE kv.key = was.key), 0) <> was.version
        ) AND NOT EXISTS (
            SELECT 1 FROM unnest(
                %(begins)b::bytea[], %(ends)b::bytea[], %(counts)b::bigint[], %(sums)b::text[]
            ) AS was (first, behind, count, sum)
            WHERE NOT (
                SELECT count(*) = was.count AND coalesce(sum(kv.version), 0) = was.sum::numeric
                FROM threefs_kv AS kv WHERE kv.key >= was.first AND kv.key < was.behind
            )
        ) AS ok
), cleared AS (
    DELETE FROM threefs_kv AS kv USING good WHERE good.ok AND kv.key = ANY (%(cleared)b::bytea[])
), written AS (
    INSERT INTO threefs_kv (key, value, version)
    SELECT pair.key, pair.value, %(version)b::bigint
    FROM good, unnest(%(set_keys)b::bytea[], %(set_values)b::bytea[]) AS pair (key, value)
    WHERE good.ok
    ON CONFLICT (key) DO UPDATE SET value = excluded.value, version = excluded.version
)
SELECT ok FROM good
"""


class PostgresEngine:
    """Use `await PostgresEngine.open("postgresql://...")`."""

    quick = False

    def __init__(self, connections: Connections, clock: Clock, random: Random) -> None:
        self._connections = connections
        self._clock = clock
        self._random = random

    @classmethod
    async def open(cls, conninfo: str, *, clock: Clock = CLOCK, random: Random = RANDOM) -> "PostgresEngine":
        """Make the table, in the schema that the connection works in, if it is not there. Raises Unavailable,
        NotAuthorised, InvalidSettings."""
        connections = Connections(conninfo, clock=clock)
        try:
            await _make_table(connections)
        except BaseException:
            await connections.close()
            raise
        return cls(connections, clock, random)

    def begin(self, lifetime_s: float = MAX_TRANSACTION_SECONDS) -> RemoteTransaction:
        return RemoteTransaction(self, Reading(self._connections), self._clock, lifetime_s)

    async def close(self) -> None:
        await self._connections.close()

    async def confirm(self, attempt: RemoteTransaction) -> None:
        """What was read is durable, but counts only once PostgreSQL has found a place for it in its order."""
        assert isinstance(attempt.snapshot, Reading)
        await attempt.snapshot.finish()

    async def commit(self, attempt: RemoteTransaction) -> None:
        assert isinstance(attempt.snapshot, Reading)
        reading = attempt.snapshot
        if reading.begun:
            await attempt.know([key for key in attempt.reads.points if key not in attempt.versions])
            for begin, end in attempt.reads.ranges:
                await attempt.know_range(begin, end)
        statement = self._statement(attempt, reading.begun)
        connection = reading.hand_over() or await self._connections.take()
        try:
            await self._write(connection, statement)
        except Unavailable as error:
            await self._connections.give_up(connection)
            raise MaybeCommitted(f"the connection was lost in the commit: {error}") from None
        except ThreefsError:
            self._connections.give_back(connection)
            raise
        except BaseException:
            await self._connections.give_up(connection)
            raise
        self._connections.give_back(connection)

    def _statement(self, attempt: RemoteTransaction, begun: bool) -> dict[str, Any]:
        """Where nothing was read, what was noted counts from the commit on."""
        points = sorted(attempt.reads.points) if begun else []
        scans = [attempt.scans[seen] for seen in dict.fromkeys(attempt.reads.ranges)] if begun else []
        pairs = sorted((key, value) for key, value in attempt.writes.items() if value is not None)
        return {
            "keys": points,
            "versions": [attempt.versions[key] for key in points],
            "begins": [scan.begin for scan in scans],
            "ends": [scan.end for scan in scans],
            "counts": [scan.count for scan in scans],
            "sums": [str(scan.versions) for scan in scans],
            "cleared": sorted(key for key, value in attempt.writes.items() if value is None),
            "set_keys": [key for key, _ in pairs],
            "set_values": [value for _, value in pairs],
            "version": (int.from_bytes(self._random.token(8), "big") >> 1) or 1,
        }

    async def _write(self, connection: Connection, statement: dict[str, Any]) -> None:
        """Raises Conflict; Unavailable if the end is not known."""
        deadline = self._clock.monotonic() + MAX_TRANSACTION_SECONDS
        longest = _FIRST_PAUSE_S
        while True:
            try:
                if not await _attempt(connection, statement):
                    raise Conflict
                return
            except (psycopg.Error, TimeoutError) as error:
                failure = error_of(error)
            pause = self._random.uniform(0.0, longest)
            if not isinstance(failure, Conflict) or self._clock.monotonic() + pause > deadline:
                raise failure
            await self._clock.sleep(pause)
            longest = min(2 * longest, _LONGEST_PAUSE_S)


async def _attempt(connection: Connection, statement: dict[str, Any]) -> bool:
    """One round trip. COMMIT is a statement of its own: only its answer says that the transaction was possible."""
    async with asyncio.timeout(CALL_S):
        async with connection.pipeline():
            if connection.info.transaction_status is not TransactionStatus.IDLE:
                await connection.execute("ROLLBACK")
            await connection.execute("BEGIN ISOLATION LEVEL SERIALIZABLE")
            cursor = await connection.execute(_COMMIT, statement, binary=True)
            await connection.execute("COMMIT")
        row = await cursor.fetchone()
    assert row is not None
    return bool(row[0])


async def _make_table(connections: Connections) -> None:
    connection = await connections.take()
    try:
        cursor = await connection.execute("SELECT to_regclass('threefs_kv')")
        if await cursor.fetchone() == (None,):
            await connection.execute(_MAKE)
    except psycopg.Error as error:
        raise error_of(error) from None
    finally:
        connections.give_back(connection)
