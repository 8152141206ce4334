"""Chunks of files that were removed for good go, and no others."""

import asyncio
import dataclasses

from threefs_meta.orphan_collector import OrphanCollector, own_share
from threefs_meta.store import keys
from threefs_meta.store.counters import raise_to
from threefs_meta.store.identity import EPOCH_BITS, first_inode

from tests.harness.memory_storage import make_routing
from tests.harness.meta_harness import MetaBench
from threefs.ids import ChunkId, InodeId, NodeId
from threefs.kv import records
from threefs.kv.engine_api import Transaction
from threefs.layout import from_wire
from threefs.routing import Node, NodeKind
from threefs.wire import meta_pb2 as pb
from threefs.wire.records_pb2 import StoreRecord

OWN = NodeId(1001)


def node(number: int) -> Node:
    return Node(NodeId(number), NodeKind.META, "", f"meta-{number}:1", 1)


async def prepared(bench: MetaBench, epoch: int = 0, first_number: int = 0) -> OrphanCollector:
    async def identify(tx: Transaction) -> None:
        record = StoreRecord(store_id="s", epoch=epoch, first_number=first_number)
        tx.set(keys.STORE, records.encode(record))
        await raise_to(tx, keys.NEXT_INODE, first_inode(record))  # as a restore does

    await bench.context.transact(identify)
    routing = bench.cluster.routing
    bench.cluster.routing = dataclasses.replace(routing, nodes={**routing.nodes, OWN: node(OWN)})
    return OrphanCollector(bench.context, bench.chunks, lambda: OWN, 60.0)


async def written(bench: MetaBench, path: str) -> pb.Inode:
    made = (await bench.create(path)).inode
    await bench.write(made, 0, b"data")
    return made


async def late_write(bench: MetaBench, inode: pb.Inode, number: int = 0) -> ChunkId:
    """A chunk of an inode, whether it exists or not."""
    await bench.chunks.write(from_wire(inode.layout), InodeId(inode.inode), number, 0, b"late", timeout_s=5.0)
    return ChunkId(inode.inode, number)


async def test_only_chunks_without_an_inode_go(bench: MetaBench) -> None:
    collector = await prepared(bench)
    kept, gone, unnamed = await written(bench, "/kept"), await written(bench, "/gone"), await written(bench, "/unnamed")
    await bench.remove("/gone")
    await bench.collect_all()
    orphans = [await late_write(bench, gone, number) for number in range(3)]
    await bench.remove("/unnamed")  # its inode waits for the garbage collector
    assert all(chunk in bench.storage.data for chunk in orphans)
    bench.storage.short = set(bench.cluster.routing.chains)  # below the minimum: what nobody can read goes all the same
    assert await collector.collect() == collector.removed_chunks == 3
    assert not any(chunk in bench.storage.data for chunk in orphans)
    assert bench.chunk_numbers(kept) == bench.chunk_numbers(unnamed) == [0]
    assert await collector.collect() == 0


async def test_numbers_of_before_a_restore_and_of_the_future_are_left_to_fsck(bench: MetaBench) -> None:
    file = await written(bench, "/file")
    collector = await prepared(bench, epoch=1)
    left = [await late_write(bench, pb.Inode(inode=number, layout=file.layout)) for number in (999, 1 << EPOCH_BITS)]
    assert await collector.collect() == 0 and all(chunk in bench.storage.data for chunk in left)


async def test_numbers_of_an_earlier_restore_within_the_epoch_are_left_to_fsck(bench: MetaBench) -> None:
    """Both stores were restored twice within two minutes. Files that were made between may be in a newer backup."""
    file = await written(bench, "/file")
    collector = await prepared(bench, epoch=1, first_number=1 << 20)
    left = await late_write(bench, pb.Inode(inode=(1 << EPOCH_BITS) + 7, layout=file.layout))
    assert await collector.collect() == 0 and left in bench.storage.data


async def test_a_chain_that_is_not_served_holds_up_no_other(bench: MetaBench) -> None:
    collector = await prepared(bench)
    gone = await written(bench, "/gone")
    await bench.remove("/gone")
    await bench.collect_all()
    await late_write(bench, gone)
    lost, *served = sorted(bench.cluster.routing.chains)
    if from_wire(gone.layout).chain_of(bench.cluster.routing.tables[1], 0) == lost:  # type: ignore[index]
        lost, *served = served
    chains = dict(bench.cluster.routing.chains)
    chains[lost] = dataclasses.replace(chains[lost], members=())
    bench.cluster.routing = dataclasses.replace(bench.cluster.routing, chains=chains)
    assert await collector.collect() == 1


def test_each_service_has_its_share_of_the_chains() -> None:
    routing = make_routing(chains=7)
    assert own_share(routing, 1001) == []
    routing = dataclasses.replace(routing, nodes={NodeId(n): node(n) for n in (1001, 1005, 1003)})
    shares = [own_share(routing, number) for number in (1001, 1003, 1005)]
    assert sorted(chain for share in shares for chain in share) == sorted(routing.chains) and [
        len(share) for share in shares
    ] == [3, 2, 2]


async def test_a_shorter_interval_ends_a_pause_that_has_begun(bench: MetaBench) -> None:
    collector = await prepared(bench)
    gone = await written(bench, "/gone")
    await bench.remove("/gone")
    await bench.collect_all()
    await late_write(bench, gone)
    collector.start()
    await asyncio.sleep(0.01)
    assert collector.removed_chunks == 0
    collector.set_interval(0.001)
    while not collector.removed_chunks:
        await asyncio.sleep(0.001)
    await collector.stop()
