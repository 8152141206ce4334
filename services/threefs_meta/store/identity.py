"""The identity of the store from which this service serves, and its admission by the manager (I15).

The identity is drawn when the store is made, in the transaction that makes the root directory. Before that the service
asks the manager whether the cluster has metadata already: a disk that is not mounted looks like an empty store. While
the store is in use, the service reports its generation to the manager: a number that rises with each tick and each
start. Of an embedded store it reports, each second, the number of the newest durable change. So the manager knows an
older copy if it lacks a change that was reported: all but those of the last second (EMBEDDED_REPORT_S), or, of a store
that is not embedded, of the last REPORT_S and a tick. It knows each block of inode numbers before a number of it is
given out, and each start skips numbers of leases. So even a copy that lacks only the last changes gives no number out
twice.

Inode numbers are `epoch << EPOCH_BITS | counter`. The manager gives a store that was loaded from a backup an epoch that
no store had before; or, if it was restored too, an epoch and a first number of it that are made from its clock, behind
all that were given before. So a new file never gets the number, and never the chunks, of a file that the backup does
not know. The same holds for the numbers of leases: a client that has got a lock or an open file since the backup sees a
number higher than all before, and knows by it that it holds nothing any more (I18).
"""

import math
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import structlog

from threefs.cluster import data_format
from threefs.cluster.manager_client import Caller
from threefs.env.clock import Clock
from threefs.env.random import Random
from threefs.errors import Corrupt, NodeInUse, NoSpace, Retry, StrangeStore, ThreefsError
from threefs.ids import ROOT
from threefs.kv import records, restore_mark, retry
from threefs.kv.dump import KEYS_END
from threefs.kv.engine_api import Engine, Transaction
from threefs.rpc.methods import ADMIT_STORE
from threefs.wire import manager_pb2 as pb
from threefs.wire.records_pb2 import RestoreMark, StoreRecord
from threefs_meta.lease import leases
from threefs_meta.store import keys
from threefs_meta.store.counters import increase, raise_to, read_counter
from threefs_meta.store.namespace import make_root
from threefs_meta.store.reopening import outlast_reopening

#: Of the counter in an inode number; 24 bits are left for the epoch.
EPOCH_BITS = 40
REPORT_S = 5.0
#: A report is a transaction of the manager, which makes 2.5 per second for its own lease.
EMBEDDED_REPORT_S = 1.0
_START_S = 30.0
_CALL_S = 5.0
_PAUSE_S = 0.2
_IN_USE_S = 15.0  # how long another service may seem alive on a store for one process
_MAX_ATTEMPTS = 5
_ID_BYTES = 16
#: More than are given out in the seconds in which an older copy is not known. A start counts them as used.
_SKIPPED_LEASES = 1 << 20
_PAGE = 200

T = TypeVar("T")

_LOG = structlog.get_logger()


class StoreIdentity:
    """One per service. Call `admit` before it serves, then `run` while it does."""

    def __init__(
        self,
        engine: Engine,
        managers: Caller,
        cluster_id: Callable[[], str],
        *,
        owner: tuple[int, int] = (0, 0),
        address: Callable[[], str] = lambda: "",
        is_sole: bool = False,
        clock: Clock,
        random: Random,
    ) -> None:
        """`owner` (user, group) owns the root directory of a new store. `address` is that of this service.
        `is_sole`: the store admits one process."""
        self.record = StoreRecord()  # filled when the store is admitted
        self._engine = engine
        self._managers = managers
        self._cluster_id = cluster_id
        self._owner = owner
        self._address = address
        self._is_sole = is_sole
        self._clock = clock
        self._random = random

    async def admit(self) -> None:
        """Make the store if the cluster has none, and have it admitted. Raises StrangeStore, NodeInUse."""
        if await self._patiently(_is_empty):
            try:
                await self._ask_manager(pb.AdmitStoreRequest(cluster_id=self._cluster_id(), address=self._address()))
            except StrangeStore:  # another service may have made the store since, and registered it with the manager
                if await self._patiently(_is_empty):
                    raise
        fresh = StoreRecord(store_id=self._random.token(_ID_BYTES).hex(), cluster_id=self._cluster_id())
        restore_id = self._random.token(_ID_BYTES).hex()
        now_ns = self._clock.wall_ns()
        record, mark = await self._patiently(lambda tx: _identify(tx, fresh, restore_id, now_ns, self._owner))
        given = await self._report(restored=mark, sole_address=self._address() if self._is_sole else "")
        after: bytes | None = b""
        while mark is not None and after is not None:
            after = await self._patiently(partial(_end_leases, after))
        self.record = await self._patiently(lambda tx: _finish_restore(tx, given, now_ns))
        # Only a store that was admitted counts its start: else restarts would bring an older copy up to date.
        await self._patiently(_count_start)
        await self._report()
        if mark is not None:
            _LOG.warning("serving from a restored store", store=record.store_id, epoch=self.record.epoch)

    async def run(self) -> None:
        """Report the tick of the store to the manager. Raises StrangeStore when another store has taken its place."""
        while True:
            await self._clock.sleep(EMBEDDED_REPORT_S if self._engine.is_embedded else REPORT_S)
            try:
                await self._report()
            except StrangeStore:
                raise
            except ThreefsError as error:
                _LOG.info("the store could not be reported to the manager", error=str(error))

    async def report_inode_numbers(self) -> None:
        """Tell the manager which numbers are reserved. Once it knows, an older copy of the store is refused. Raises
        StrangeStore, and the errors of managers that do not answer."""
        await self._report(wait=False)

    async def _report(
        self, *, restored: RestoreMark | None = None, sole_address: str = "", wait: bool = True
    ) -> pb.AdmitStoreReply:
        """Returns what the manager gives. With `wait`, waits for a manager as long as it takes.

        Another service may have reported a later state of the same store while this report was on its way. So a refused
        one is made again, and is not final while the store goes on: an older copy does so only by what it does itself.
        """
        read = self._patiently if wait else self._transaction
        attempts, refused_at = 0, math.inf  # the first time
        request = await read(_admission_request)
        while True:
            request.sole_address, request.address = sole_address, self._address()
            if restored is not None:
                request.restored, request.restore_id = True, restored.restore_id
            request.durable_change = self._engine.durable_change
            try:
                if wait:
                    return await self._ask_manager(request)
                return await self._managers.call(ADMIT_STORE, request, timeout_s=_CALL_S)
            except StrangeStore:
                now = self._clock.monotonic()
                refused_at = min(refused_at, now)
                newest = await read(_admission_request)
                attempts += now - refused_at > _START_S or not _is_ahead(newest, request)
                if attempts == _MAX_ATTEMPTS:
                    raise
                request = newest

    async def _transaction(self, function: Callable[[Transaction], Awaitable[T]]) -> T:
        return await retry.run(
            self._engine, function, clock=self._clock, random=self._random, timeout_s=_START_S, replayable=True
        )

    async def _patiently(self, function: Callable[[Transaction], Awaitable[T]]) -> T:
        """The same, also while the store is opened again."""
        return await outlast_reopening(partial(self._transaction, function), self._clock)

    async def _ask_manager(self, request: pb.AdmitStoreRequest) -> pb.AdmitStoreReply:
        """Waits for the manager as long as it takes."""
        last_error = ""
        refused_at: float | None = None  # the first time in a row that another service seemed alive
        while True:
            try:
                return await self._managers.call(ADMIT_STORE, request, timeout_s=_CALL_S)
            except ThreefsError as error:
                now = self._clock.monotonic()
                refused_at = (now if refused_at is None else refused_at) if isinstance(error, NodeInUse) else None
                in_use = refused_at is not None and now - refused_at > _IN_USE_S
                waits = error.retry is not Retry.NEVER or isinstance(error, NoSpace)  # the manager's disk may be full
                if not waits or in_use:
                    raise
                if str(error) != last_error:
                    last_error = str(error)
                    _LOG.info("waiting for the manager to admit the store", error=last_error)
            await self._clock.sleep(_PAUSE_S)


async def _is_empty(tx: Transaction) -> bool:
    return not await tx.get_range(b"", KEYS_END, limit=1)


async def read_record(tx: Transaction) -> StoreRecord | None:
    """None: the store is new."""
    value = await tx.get(keys.STORE)
    return None if value is None else records.decode(value, StoreRecord, keys.STORE)


async def _identify(
    tx: Transaction, fresh: StoreRecord, restore_id: str, now_ns: int, owner: tuple[int, int]
) -> tuple[StoreRecord, RestoreMark | None]:
    """The identity, and the mark of a restore that is not settled. A store without an identity gets `fresh`: the store
    is new, or was made by a version that drew none; a restore without one gets `restore_id`. Raises StrangeStore if a
    newer version has worked in it."""
    await data_format.claim_store(tx, keys.FORMAT, "the metadata store")
    mark = await restore_mark.read_mark(tx)
    if mark is not None and not mark.restore_id:
        restore_mark.put_id(tx, mark, restore_id)
    record = await read_record(tx)
    if record is None:
        record = fresh
        tx.set(keys.STORE, records.encode(record))
        await make_root(tx, now_ns, *owner)
    return record, mark


async def _admission_request(tx: Transaction) -> pb.AdmitStoreRequest:
    record = await read_record(tx)
    if record is None:
        raise StrangeStore("the identity of the metadata store is gone: another program writes to the store")
    return pb.AdmitStoreRequest(
        cluster_id=record.cluster_id,
        store_id=record.store_id,
        epoch=record.epoch,
        generation=await read_counter(tx, keys.TICK) + await read_counter(tx, keys.STARTS),
        next_inode=max(await read_counter(tx, keys.NEXT_INODE), ROOT + 1),
    )


def _is_ahead(newest: pb.AdmitStoreRequest, sent: pb.AdmitStoreRequest) -> bool:
    """Whether the store has gone on since that was sent."""
    return any(getattr(newest, counter) > getattr(sent, counter) for counter in ("epoch", "generation", "next_inode"))


async def _count_start(tx: Transaction) -> None:
    await increase(tx, keys.STARTS, 1)
    await increase(tx, keys.LAST_LEASE, _SKIPPED_LEASES)


async def _end_leases(after: bytes, tx: Transaction) -> bytes | None:
    """End the leases of some clients of a restored store, behind this one. Returns the last of them; None when none is
    left, or another service has settled the restore.

    A client whose record is damaged can hold nothing more. What it held is released as that of a silent one.
    """
    if await restore_mark.read_mark(tx) is None:
        return None
    begin, end = keys.CLIENTS
    page = await tx.get_range(begin + after + b"\0" if after else begin, end, limit=_PAGE)
    clients = [key.removeprefix(begin) for key, _ in page]
    for client in clients:
        try:
            await leases.end(tx, client, await leases.current(tx, client))
        except Corrupt as error:
            _LOG.error("the lease of a client cannot be read", client=client.hex(), error=str(error))
            leases.make_silent(tx, client)
    return clients[-1] if clients else None


def first_inode(record: StoreRecord) -> int:
    """The first inode number that the store may have given out since it was made, or restored."""
    first: int = (record.epoch << EPOCH_BITS) + record.first_number
    return first


async def _finish_restore(tx: Transaction, given: pb.AdmitStoreReply, now_ns: int) -> StoreRecord:
    record = await read_record(tx)
    assert record is not None, "the store has an identity before its restore is settled"
    if given.epoch > record.epoch:
        record.epoch, record.first_number, record.restored_ns = given.epoch, given.first_number, now_ns
        tx.set(keys.STORE, records.encode(record))
        before = await read_counter(tx, keys.NEXT_INODE)
        first = await raise_to(tx, keys.NEXT_INODE, first_inode(record))
        await raise_to(tx, keys.LAST_LEASE, first_inode(record))
        try:
            # Numbers that no inode gets count as removed, so that the rest is the number of inodes.
            await increase(tx, keys.REMOVED_INODES, first - before)
        except Corrupt as error:
            _LOG.error("the count of removed inodes cannot be read", error=str(error))
        restore_mark.settle(tx)
    return record
