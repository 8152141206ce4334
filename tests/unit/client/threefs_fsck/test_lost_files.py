"""Which files lose bytes when one target of a chain goes on alone."""

from collections.abc import Sequence

import pytest
from threefs_fsck import lost_files
from threefs_fsck.lost_files import LosingFile, LostFiles

from tests.harness.fsck import LocalMeta
from tests.harness.meta_harness import SESSION, MetaBench
from threefs.ids import ChainId, ChunkId, InodeId, TargetId
from threefs.layout import chunk_count, from_wire
from threefs.wire import meta_pb2 as pb

CHUNK = 64 << 10
LAYOUT = pb.Layout(chunk_bytes=CHUNK, stripe=2)


async def file(bench: MetaBench, path: str, chunks: int) -> pb.Inode:
    inode = (await bench.create(path, session=SESSION, layout=LAYOUT)).inode
    for number in range(chunks):
        await bench.write(inode, number * CHUNK, b"x" * CHUNK)
    return await bench.close(inode, SESSION, length_hint=chunks * CHUNK, written=True)


def chain_of(bench: MetaBench, inode: pb.Inode, number: int) -> ChainId:
    layout = from_wire(inode.layout)
    return layout.chain_of(bench.storage.cluster.routing.tables[layout.table_id], number)


def on_chain(bench: MetaBench, inode: pb.Inode, chain: ChainId) -> Sequence[ChunkId]:
    numbers = range(chunk_count(CHUNK, inode.length))
    return [ChunkId(InodeId(inode.inode), n) for n in numbers if chain_of(bench, inode, n) == chain]


async def find(bench: MetaBench, target: TargetId) -> LostFiles:
    routing = bench.storage.cluster.routing
    chain, address = routing.targets[target].chain_id, routing.address_of(target)
    return await lost_files.find(LocalMeta(bench.context), bench.storage, routing.tables, chain, target, address)


async def test_files_whose_chunks_the_target_lacks_are_named(bench: MetaBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lost_files, "MAX_NAMED", 2)
    await bench.mkdir("/d")
    paths = ["/d/a", "/d/b", "/d/c", "/whole"]
    inodes = {path: await file(bench, path, 5) for path in paths}
    await bench.create("/empty")
    chain = chain_of(bench, inodes["/d/a"], 0)
    target = bench.storage.cluster.routing.chains[chain].members[-1].target_id
    mine = {path: on_chain(bench, inode, chain) for path, inode in inodes.items()}
    assert (await find(bench, target)) == LostFiles(others=sum(map(bool, mine.values())))
    losing = [path for path in paths[:3] if mine[path]]
    for path in losing:
        bench.storage.lacking.add((target, mine[path][0]))
    found = await find(bench, target)
    assert found.named == [LosingFile(path, len(mine[path]), 1) for path in losing[:2]]
    assert found.more == len(losing[2:]) and found.others == bool(mine["/whole"])


async def test_a_damaged_chunk_is_lacking(bench: MetaBench) -> None:
    inode = await file(bench, "/a", 2)
    chain = chain_of(bench, inode, 1)
    target = bench.storage.cluster.routing.chains[chain].members[-1].target_id
    bench.storage.health[target, on_chain(bench, inode, chain)[0]] = 1
    (found,) = (await find(bench, target)).named
    assert (found.path, found.lacking) == ("/a", 1)
