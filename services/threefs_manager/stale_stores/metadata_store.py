"""The metadata store that a cluster knows, and whether a given store may serve (I15).

A store that is empty, or of another cluster, or an older copy of the right one would give out inode numbers whose
chunks belong to other files, and show names that are outdated. So it is refused, unless it was loaded from a backup:
then its inode numbers get an epoch that no store of this cluster had before. That epoch counts from the moment when the
store tells of it: a request of a restored store that was lost, or emptied, may come late, when another one is in use.
"""

import asyncio
from collections.abc import Awaitable, Callable
from collections.abc import Set as AbstractSet
from typing import TypeVar

from threefs.cluster.manager_records import METADATA_KEY
from threefs.env.clock import Clock
from threefs.env.net import Net
from threefs.errors import InvalidArgument, NodeInUse, StrangeStore, Unavailable
from threefs.kv import records
from threefs.kv.engine_api import Transaction
from threefs.routing import Node, NodeKind, Routing
from threefs.wire import manager_pb2 as pb
from threefs_manager.nodes.failure_detector import FailureDetector
from threefs_manager.nodes.presence import nobody_listens
from threefs_manager.store.restored_versions import wrong_store_message

T = TypeVar("T")

_EPOCHS = 1 << 24  # that inode numbers have room for

_RESTORE_HINT = (
    "mount its disk, or restore the newest backup with `threefs restore BACKUP` (docs/backup.md). A store that the "
    "cluster does not know is not used, because files would show the bytes of others"
)
_NEWEST_HINT = (
    "Put the newest one in its place, or load what there is as a backup (`threefs meta dump`, then `threefs meta "
    "load`): docs/backup.md"
)


async def admit(tx: Transaction, cluster_id: str, request: pb.AdmitStoreRequest) -> pb.AdmitStoreReply:
    """Check the store of a meta service in a transaction of the primary, and keep what it says. Raises StrangeStore."""
    value = await tx.get(METADATA_KEY)
    known = pb.MetadataStore() if value is None else records.decode(value, pb.MetadataStore, METADATA_KEY)
    updated = check_store(known, cluster_id, request)
    if updated != known:
        tx.set(METADATA_KEY, records.encode(updated))
    epoch = _newest_epoch(updated) if request.restored else updated.epoch
    return pb.AdmitStoreReply(epoch=epoch, first_number=updated.first_number)


def check_store(known: pb.MetadataStore, cluster_id: str, request: pb.AdmitStoreRequest) -> pb.MetadataStore:
    """The record of the metadata store after the request. Raises StrangeStore, Unavailable, InvalidArgument."""
    if request.cluster_id and not cluster_id:  # the manager's store is the strange one: it is to be restored
        raise Unavailable(wrong_store_message(request.cluster_id, ""))
    if request.cluster_id != cluster_id:
        raise StrangeStore(
            f"the metadata store {request.store_id} belongs to cluster {request.cluster_id}, this manager to "
            f"{cluster_id}: {_RESTORE_HINT}"
        )
    if not request.store_id:
        if known.store_id:
            raise StrangeStore(
                f"the metadata store is empty, but cluster {cluster_id} keeps its metadata in store {known.store_id}: "
                f"{_RESTORE_HINT}"
            )
        if known.forgotten:
            raise StrangeStore(
                f"the metadata store is empty, but cluster {cluster_id}, whose manager was rebuilt, has one: "
                f"{_RESTORE_HINT}"
            )
        return known
    if known.store_id and request.store_id != known.store_id:
        raise StrangeStore(
            f"this is the metadata store {request.store_id}, but cluster {cluster_id} keeps its metadata in store "
            f"{known.store_id}: {_RESTORE_HINT}"
        )
    if request.epoch + 1 >= _EPOCHS:  # a restore needs one more, and the record would keep it for ever
        raise InvalidArgument(f"the metadata store says epoch {request.epoch}, of {_EPOCHS} that there are")
    if request.restored:
        if _has_epoch(known, request):
            _check_settled(known, request)
            return known
        given = pb.MetadataStore()
        given.CopyFrom(known)
        given.given_epoch = max(_newest_epoch(known) + 1, request.epoch + 1, known.next_epoch)
        given.given_restore_id = request.restore_id
        return given
    if request.epoch == known.epoch and 0 < request.next_inode < known.next_inode:
        raise StrangeStore(
            f"the metadata store is an older copy: its next inode number is {request.next_inode}, but the cluster has "
            f"given out numbers up to {known.next_inode - 1}. {_NEWEST_HINT}"
        )
    if request.epoch == known.epoch and 0 < request.durable_change < known.durable_change:
        raise StrangeStore(
            f"the metadata store is an older copy: its newest change is {request.durable_change}, but the cluster has "
            f"seen change {known.durable_change}; the names and locks of the changes between are not in it. "
            f"{_NEWEST_HINT}"
        )
    if (request.epoch, request.generation) < (known.epoch, known.generation):
        raise StrangeStore(
            f"the metadata store is an older copy: it is in epoch {request.epoch} at tick {request.generation}, but "
            f"the cluster has seen epoch {known.epoch} and tick {known.generation}. {_NEWEST_HINT}"
        )
    same_epoch = request.epoch == known.epoch
    return pb.MetadataStore(
        store_id=request.store_id,
        epoch=request.epoch,
        generation=request.generation,
        next_inode=request.next_inode or (known.next_inode if same_epoch else 0),
        durable_change=request.durable_change or (known.durable_change if same_epoch else 0),
        next_epoch=known.next_epoch,
        first_number=known.first_number,
        restore_id=known.given_restore_id if request.epoch == known.given_epoch else known.restore_id,
        given_epoch=known.given_epoch,
        given_restore_id=known.given_restore_id,
    )


def _has_epoch(known: pb.MetadataStore, request: pb.AdmitStoreRequest) -> bool:
    """Whether this restore has its epoch already, because another service of the store has asked, or this one before.
    A further epoch would make the first one, with which the other service may serve by now, one of an older copy."""
    newest = known.given_restore_id if known.given_epoch > known.epoch else known.restore_id
    is_same = bool(request.restore_id) and request.restore_id == newest
    return is_same and _newest_epoch(known) >= max(request.epoch, known.next_epoch)


def _newest_epoch(known: pb.MetadataStore) -> int:
    return max(int(known.given_epoch), int(known.epoch))


def _check_settled(known: pb.MetadataStore, request: pb.AdmitStoreRequest) -> None:
    """A store that serves with its epoch has the epoch in its record. One that has not is a copy from before, and would
    give out the inode numbers of the epoch once more. A service that has read its record before another one wrote it
    asks again. Raises StrangeStore."""
    is_in_use = known.next_inode and known.epoch == _newest_epoch(known)
    if is_in_use and request.epoch < known.epoch:
        raise StrangeStore(
            f"the metadata store is an older copy: its restore is not finished, but the cluster has seen the same "
            f"restored store serve in epoch {known.epoch}. {_NEWEST_HINT}"
        )


class SoleService:
    """Keeps a copy of a store for one process from being served beside it: each service would give out the inode
    numbers of the other, and not know its names. Of one term as primary."""

    def __init__(self, net: Net, clock: Clock) -> None:
        self._net = net
        self._clock = clock
        self._admitted = ""  # the address of the service that was admitted last, in this term
        self._turn = asyncio.Lock()

    async def admit(
        self,
        address: str,
        routing: Callable[[], Routing],
        detector: FailureDetector,
        admit: Callable[[], Awaitable[T]],
    ) -> T:
        """What `admit` returns, which admits the store of the service that starts at `address`. One after the other: a
        transaction may sleep, and others must not be judged meanwhile without the service that it is for. An empty
        address: the service has started before, or its store is for several. Raises NodeInUse."""
        if not address:
            return await admit()
        async with self._turn:
            await self._check(address, routing, detector)
            admitted = await admit()
            self._admitted = address
            return admitted

    async def _check(self, address: str, routing: Callable[[], Routing], detector: FailureDetector) -> None:
        """Raises NodeInUse while another meta service lives than the one at `address`. Who is silent is looked up anew
        after each wait: this process may have been suspended in it."""
        ended: set[Node] = set()
        while (other := self._other(address, routing(), detector, ended)) is not None:
            if not await nobody_listens(self._net, other.address, self._clock):
                raise NodeInUse(
                    f"a meta service lives at {other.address}, and its store is for one process, so the store at "
                    f"{address} is a copy; stop one of them. A service that has died is given up after "
                    f"{routing().lease_s:g} s of silence"
                )
            ended.add(other)

    def _other(
        self, address: str, routing: Routing, detector: FailureDetector, ended: AbstractSet[Node]
    ) -> Node | None:
        """Another meta service that is not silent, and none of those that have ended. Those that wait for their turn do
        not count."""
        for node in routing.nodes.values():
            if (
                node.kind is NodeKind.META
                and node.address not in ("", address)
                and node not in ended
                and self._admitted in ("", node.address)
                and not detector.is_silent(node.node_id, routing.lease_s)
            ):
                return node
        return None
