"""Group commit for PostgreSQL: transactions of this process that wait are committed by one statement.

The statement checks each transaction by itself: if a key that it has read has another version, or a range has another
count or sum of versions, it writes nothing. One statement for all saves a flush of the log for each. And where many
transactions write one key, as creates in one directory do, PostgreSQL would commit only one of them at a time, and make
the others start again.

A transaction joins a group only if it has not read what an earlier one of the group writes, because all are checked
against the state before the group.

A commit may wait for a synchronous standby that is away. After a while its connection is closed, and the outcome is
unknown. The server's process goes on waiting, and nobody sees the change until the standby has it. While one process
waits, no commit is sent after it: it would wait as well, until the server has no process left for those who read.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg

from threefs.backoff import Backoff
from threefs.env.clock import Clock
from threefs.env.random import Random
from threefs.errors import Conflict, InvalidSettings, MaybeCommitted, ThreefsError, Throttled, TooLarge, Unavailable
from threefs.kv.engine_api import MAX_TRANSACTION_SECONDS
from threefs.kv.postgres_connections import CALL_S, Connection, Connections, error_of
from threefs.kv.remote_transaction import Scan

MAX_BATCH = 64
_MAX_BYTES = 4_000_000
_BACKOFF = Backoff(0.001, 0.05, jitter=1.0)

#: In the answer instead of a place in the group: nothing was checked, and nothing was written.
_NOT_SERIALIZABLE = -1

_COMMIT = f"""
WITH bad AS MATERIALIZED (
    SELECT was.n
    FROM unnest(%(point_n)b::int[], %(points)b::bytea[], %(versions)b::bigint[]) AS was (n, key, version)
    WHERE coalesce((SELECT kv.version FROM threefs_kv AS kv WHERE kv.key = was.key), 0) <> was.version
    UNION
    SELECT was.n
    FROM unnest(
        %(scan_n)b::int[], %(begins)b::bytea[], %(ends)b::bytea[], %(counts)b::bigint[], %(sums)b::text[]
    ) AS was (n, first, behind, count, sum)
    WHERE NOT (
        SELECT count(*) = was.count AND coalesce(sum(kv.version), 0) = was.sum::numeric
        FROM threefs_kv AS kv WHERE kv.key >= was.first AND kv.key < was.behind
    )
), change AS MATERIALIZED (
    SELECT DISTINCT ON (key) key, value
    FROM unnest(%(write_n)b::int[], %(keys)b::bytea[], %(values)b::bytea[]) AS asked (n, key, value)
    WHERE n NOT IN (SELECT n FROM bad) AND current_setting('transaction_isolation') = 'serializable'
    ORDER BY key, n DESC
), cleared AS (
    DELETE FROM threefs_kv AS kv WHERE kv.key = ANY (ARRAY(SELECT key FROM change WHERE value IS NULL))
), written AS (
    INSERT INTO threefs_kv (key, value, version)
    SELECT key, value, %(version)b::bigint FROM change WHERE value IS NOT NULL
    ON CONFLICT (key) DO UPDATE SET value = excluded.value, version = excluded.version
)
SELECT n FROM bad
UNION ALL
SELECT {_NOT_SERIALIZABLE} WHERE current_setting('transaction_isolation') <> 'serializable'
"""

#: A process may begin to wait for the standby only after it was seen at work: it may wait for a lock or a disk before.
_AT_WORK = """
SELECT pid, coalesce(wait_event, '') = 'SyncRep' FROM pg_stat_activity WHERE pid = ANY (%b::int[]) AND state <> 'idle'
"""


@dataclass(frozen=True, slots=True)
class Commit:
    """A transaction that waits for its commit."""

    versions: dict[bytes, int]  # of the keys that it depends on
    scans: Sequence[Scan]
    writes: dict[bytes, bytes | None]
    end: asyncio.Future[None] = field(compare=False)

    @property
    def length_bytes(self) -> int:
        return sum(len(key) + len(value or b"") for key, value in self.writes.items())

    def depends_on(self, keys: set[bytes]) -> bool:
        """Whether it has read one of these keys."""
        if not keys.isdisjoint(self.versions):
            return True
        return any(scan.begin <= key < scan.end for scan in self.scans for key in keys)


class Committer:
    """Commits transactions, in groups if several wait."""

    def __init__(self, connections: Connections, clock: Clock, random: Random) -> None:
        self._connections = connections
        self._clock = clock
        self._random = random
        self._waiting: deque[Commit] = deque()
        self._left: list[int] = []  # processes of the server that may still be at work on a commit
        self._task: asyncio.Task[None] | None = None

    async def commit(
        self, versions: dict[bytes, int], scans: Sequence[Scan], writes: dict[bytes, bytes | None]
    ) -> None:
        """Write if these versions and scans are still true.

        Raises Conflict, MaybeCommitted, Throttled, TooLarge, NoSpace, Unavailable.
        """
        end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(Commit(versions, scans, writes, end))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run_commits())
        await end

    async def close(self) -> None:
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run_commits(self) -> None:
        while self._waiting:
            batch = next_batch(self._waiting)
            try:
                bad = await self._commit(batch)
            except TooLarge as error:
                if len(batch) == 1:
                    _fail(batch, error)
                else:  # one of them is too large
                    for one in batch:
                        await self._commit_alone(one)
            except ThreefsError as error:
                _fail(batch, error)
            except BaseException as error:
                _fail([*batch, *self._waiting], MaybeCommitted(f"the commit was interrupted: {error!r}"))
                raise
            else:
                _settle(batch, bad)

    async def _commit_alone(self, one: Commit) -> None:
        try:
            _settle([one], await self._commit([one]))
        except ThreefsError as error:
            _fail([one], error)

    async def _commit(self, batch: Sequence[Commit]) -> set[int]:
        """Commit a group. Returns the places in it of the transactions that conflict."""
        statement = _statement(batch, (int.from_bytes(self._random.token(8), "big") >> 1) or 1)
        connection = await self._connections.take()
        try:
            await self._check_standby(connection)
            bad = await self._write(connection, statement)
        except (Unavailable, MaybeCommitted):
            await self._connections.discard(connection)
            raise
        except ThreefsError:
            self._connections.release(connection)
            raise
        except BaseException:
            await self._connections.discard(connection)
            raise
        self._connections.release(connection)
        return bad

    async def _check_standby(self, connection: Connection) -> None:
        """Raises Throttled if a commit whose connection was closed still waits for a standby, and Unavailable."""
        if not self._left:
            return
        try:
            async with asyncio.timeout(CALL_S):
                cursor = await connection.execute(_AT_WORK, (self._left,))
                at_work: list[tuple[int, bool]] = await cursor.fetchall()
        except (psycopg.Error, TimeoutError) as error:
            raise error_of(error) from None
        self._left = [process for process, _ in at_work]
        if any(waits for _, waits in at_work):
            raise Throttled("PostgreSQL waits for a synchronous standby: until one answers, nothing can be changed")

    async def _write(self, connection: Connection, statement: dict[str, Any]) -> set[int]:
        """Execute the statement, and repeat it while PostgreSQL cannot order it. Raises MaybeCommitted if the
        connection was lost."""
        process = connection.info.backend_pid
        deadline = self._clock.monotonic() + MAX_TRANSACTION_SECONDS
        attempts = 0
        while True:
            try:
                return await _attempt(connection, statement)
            except (psycopg.Error, TimeoutError) as error:
                failure = error_of(error)
            if isinstance(failure, Unavailable):
                self._left.append(process)
                raise MaybeCommitted(f"the connection was lost in the commit: {failure}")
            pause = _BACKOFF.pause_s(attempts, self._random)
            if not isinstance(failure, Conflict) or self._clock.monotonic() + pause > deadline:
                raise failure
            await self._clock.sleep(pause)
            attempts += 1


async def _attempt(connection: Connection, statement: dict[str, Any]) -> set[int]:
    """Execute the statement once. It is the whole transaction, in one message.

    With several messages, even of one pipeline, a service that hangs between two of them would block all others by the
    locks of its unfinished transaction. PostgreSQL ends only transactions whose client owes it the next command.
    """
    async with asyncio.timeout(CALL_S):
        cursor = await connection.execute(_COMMIT, statement, binary=True)
        bad = {row[0] for row in await cursor.fetchall()}
    if _NOT_SERIALIZABLE in bad:
        raise InvalidSettings(
            "PostgreSQL has lost the settings of a session: connect to the server itself, not to a connection pooler"
        )
    return bad


def next_batch(waiting: deque[Commit]) -> list[Commit]:
    """Take the next transactions that can be committed as one group, in their order."""
    batch: list[Commit] = []
    written: set[bytes] = set()
    length = 0
    while waiting and len(batch) < MAX_BATCH:
        one = waiting[0]
        if batch and (length + one.length_bytes > _MAX_BYTES or one.depends_on(written)):
            break
        batch.append(waiting.popleft())
        written.update(one.writes)
        length += one.length_bytes
    return batch


def _statement(batch: Sequence[Commit], version: int) -> dict[str, Any]:
    points = [(n, key, version) for n, one in enumerate(batch) for key, version in one.versions.items()]
    scans = [(n, scan) for n, one in enumerate(batch) for scan in one.scans]
    writes = [(n, key, value) for n, one in enumerate(batch) for key, value in one.writes.items()]
    return {
        "point_n": [n for n, _, _ in points],
        "points": [key for _, key, _ in points],
        "versions": [version for _, _, version in points],
        "scan_n": [n for n, _ in scans],
        "begins": [scan.begin for _, scan in scans],
        "ends": [scan.end for _, scan in scans],
        "counts": [scan.count for _, scan in scans],
        "sums": [str(scan.versions) for _, scan in scans],
        "write_n": [n for n, _, _ in writes],
        "keys": [key for _, key, _ in writes],
        "values": [value for _, _, value in writes],
        "version": version,
    }


def _settle(batch: Sequence[Commit], bad: set[int]) -> None:
    for n, one in enumerate(batch):
        if one.end.done():
            continue  # its caller was cancelled
        if n in bad:
            one.end.set_exception(Conflict())
        else:
            one.end.set_result(None)


def _fail(batch: Sequence[Commit], error: ThreefsError) -> None:
    for one in batch:
        if not one.end.done():
            one.end.set_exception(type(error)(str(error)))
