"""The engine over a PostgreSQL database: one table of keys, values and versions.

A transaction reads within a transaction of PostgreSQL, which is read-only and SERIALIZABLE. Its writes are kept in
memory, as in every engine, so blind writes do not conflict. The commit is one statement, which is a SERIALIZABLE
transaction by itself: it writes if every key that was read still has its version, and every range has as many keys with
the same sum of versions. So PostgreSQL orders all checks and all writes.

Each commit writes a version that is drawn at random, so a range that has lost rows and got others has another sum.
PostgreSQL detects conflicts by pages, not only by keys. A commit that it refuses for that reason is repeated here,
because no key was compared yet.
"""

import psycopg

from threefs.env.clock import CLOCK, Clock
from threefs.env.random import RANDOM, Random
from threefs.kv.engine_api import MAX_TRANSACTION_SECONDS, TransactionCounts
from threefs.kv.postgres_committer import Committer
from threefs.kv.postgres_connections import Connections, error_of
from threefs.kv.postgres_snapshot import PostgresSnapshot
from threefs.kv.remote_transaction import RemoteTransaction, Scan

#: The advisory lock that a program holds while it makes the table, so that two programs may start at once.
_MAKE_LOCK = 0x3F5

_MAKE = f"""
BEGIN ISOLATION LEVEL READ COMMITTED;
SELECT pg_advisory_xact_lock({_MAKE_LOCK});
CREATE TABLE IF NOT EXISTS threefs_kv (
    key bytea PRIMARY KEY,
    value bytea NOT NULL,
    version bigint NOT NULL
) WITH (fillfactor = 80);
ALTER TABLE threefs_kv ALTER value SET STORAGE EXTERNAL;
COMMIT;
"""


class PostgresEngine:
    """Use `await PostgresEngine.open("postgresql://...")`."""

    is_embedded = False
    durable_change = 0

    def __init__(self, connections: Connections, clock: Clock, random: Random) -> None:
        self.transaction_counts = TransactionCounts()
        self._connections = connections
        self._committer = Committer(connections, clock, random)
        self._clock = clock

    @classmethod
    async def open(cls, conninfo: str, *, clock: Clock = CLOCK, random: Random = RANDOM) -> "PostgresEngine":
        """Open the store. Its table is made in the current schema of the connection, if it does not exist.

        Raises Unavailable, NotAuthorised, InvalidSettings.
        """
        connections = Connections(conninfo, clock=clock)
        try:
            await _make_table(connections)
        except BaseException:
            await connections.close()
            raise
        return cls(connections, clock, random)

    def begin(self, lifetime_s: float = MAX_TRANSACTION_SECONDS) -> RemoteTransaction:
        return RemoteTransaction(self, PostgresSnapshot(self._connections), self._clock, lifetime_s)

    async def close(self) -> None:
        await self._committer.close()
        await self._connections.close()

    async def confirm(self, attempt: RemoteTransaction) -> None:
        """Everything that was read is durable, but it counts only after PostgreSQL has ordered the transaction."""
        assert isinstance(attempt.snapshot, PostgresSnapshot)
        await attempt.snapshot.finish()

    async def commit(self, attempt: RemoteTransaction) -> None:
        reading = attempt.snapshot
        assert isinstance(reading, PostgresSnapshot)
        versions: dict[bytes, int] = {}
        scans: list[Scan] = []
        if reading.has_read:  # without a read, a noted key conflicts with nothing before the commit
            await attempt.fetch_versions([key for key in attempt.reads.points if key not in attempt.versions])
            versions = {key: attempt.versions[key] for key in attempt.reads.points}
            for begin, end in dict.fromkeys(attempt.reads.ranges):
                await attempt.fetch_range(begin, end)
                scans.append(attempt.scans[begin, end])
        reading.drop()
        await self._committer.commit(versions, scans, attempt.writes)


async def _make_table(connections: Connections) -> None:
    connection = await connections.take()
    try:
        cursor = await connection.execute("SELECT to_regclass('threefs_kv')")
        if await cursor.fetchone() == (None,):
            await connection.execute(_MAKE)
    except psycopg.Error as error:
        raise error_of(error) from None
    finally:
        connections.release(connection)
