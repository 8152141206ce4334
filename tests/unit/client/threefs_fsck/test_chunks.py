"""Chunks of nobody, in the wrong place, behind the end, or not the same on all replicas."""

import dataclasses
from typing import Any

import pytest
from threefs_fsck.findings import Report

from tests.harness.fsck import LocalMeta, check_chunks
from tests.harness.memory_storage import make_routing
from tests.harness.meta_harness import SESSION, MetaBench
from threefs.errors import ChainChanged, DeadlineExceeded, DiskFailed, Overloaded, PeerClosed, Stopping, ThreefsError
from threefs.ids import ChainId, ChunkId, InodeId
from threefs.layout import from_wire
from threefs.routing import PublicState
from threefs.wire import meta_pb2 as pb

CHUNK = 64 << 10
LAYOUT = pb.Layout(chunk_bytes=CHUNK, stripe=2)


async def check(bench: MetaBench, *, repair: bool = False, meta: LocalMeta | None = None) -> Report:
    meta = meta or LocalMeta(bench.context)
    return await check_chunks(meta, bench.storage, bench.chunks, bench.clock, repair=repair)


def kinds(report: Report) -> list[str]:
    return sorted(finding.kind for finding in report.findings)


async def file(bench: MetaBench, path: str, chunks: int = 5) -> pb.Inode:
    """Written and closed."""
    inode = (await bench.create(path, session=SESSION, layout=LAYOUT)).inode
    for number in range(chunks):
        await bench.write(inode, number * CHUNK, b"x" * 100)
    return await bench.close(inode, SESSION, exact=True, written=True)


async def test_files_that_are_whole(bench: MetaBench) -> None:
    for name in "abc":
        await file(bench, f"/{name}")
    await bench.remove("/b")
    found = await check(bench)
    assert found.exit_code == 0
    assert found.chunks == 15
    await bench.collect_all()
    assert (await check(bench)).chunks == 10


async def test_damage_that_the_targets_know_of(bench: MetaBench) -> None:
    inode = await file(bench, "/a")
    chunk = ChunkId(inode.inode, 1)
    chain = bench.storage.cluster.routing.chains[bench.storage.chain_of[chunk]]
    bench.storage.health = {(chain.serving[0], chunk): 1}
    found = await check(bench)
    assert kinds(found) == ["damaged_replica"] and found.exit_code
    bench.storage.health = {(target, chunk): 2 for target in chain.serving}
    found = await check(bench)
    assert kinds(found) == ["lost_chunk"]
    assert found.findings[0].inode == inode.inode and "chunk 1" in found.findings[0].detail


async def test_orphaned_chunks_are_found_and_removed(bench: MetaBench) -> None:
    inode = await file(bench, "/a")
    layout = from_wire(inode.layout)
    for number in range(3):
        await bench.chunks.write(layout, InodeId(99), number, 0, b"lost", timeout_s=5)
    made = await bench.mkdir("/d")
    await bench.chunks.write(layout, InodeId(made.inode), 0, 0, b"of a directory", timeout_s=5)
    assert kinds(await check(bench)) == ["orphan_chunk"] * 4
    assert len(bench.storage.data) == 9, "a check changes nothing"
    found = await check(bench, repair=True)
    assert kinds(found) == ["orphan_chunk"] * 4 and found.exit_code == 1
    assert set(bench.storage.data) == {ChunkId(inode.inode, number) for number in range(5)}
    assert (await check(bench)).exit_code == 0


async def test_a_file_that_is_being_freed_has_no_lost_chunks(bench: MetaBench) -> None:
    """Its inode is gone when it is asked for, and so are its chunks when they are looked at again."""
    await file(bench, "/a")
    meta = LocalMeta(bench.context)

    async def free(request: Any) -> None:
        meta.before = None
        await bench.remove("/a")
        await bench.collect_all()

    meta.before = free
    assert (await check(bench, meta=meta, repair=True)).exit_code == 0


async def test_a_chunk_on_another_chain_than_that_of_its_file(bench: MetaBench) -> None:
    inode = await file(bench, "/a")
    chunk = ChunkId(inode.inode, 1)
    bench.storage.chain_of[chunk] = ChainId(3 - bench.storage.chain_of[chunk])
    found = await check(bench, repair=True)
    assert kinds(found) == ["misplaced_chunk"] and found.exit_code == 4
    assert chunk in bench.storage.data, "it is not known which of the two is right"


async def test_a_chunk_on_another_chain_behind_the_end_of_its_file_is_of_a_file_that_is_gone(bench: MetaBench) -> None:
    inode = await file(bench, "/a")
    await bench.write(inode, 7 * CHUNK, b"old")
    chunk = ChunkId(inode.inode, 7)
    bench.storage.chain_of[chunk] = ChainId(3 - bench.storage.chain_of[chunk])
    found = await check(bench)
    assert kinds(found) == ["misplaced_chunk"] and found.exit_code == 4
    found = await check(bench, repair=True)
    assert kinds(found) == ["misplaced_chunk"] and found.exit_code == 1
    assert chunk not in bench.storage.data
    assert (await check(bench)).exit_code == 0


async def test_bytes_behind_the_end_of_a_file(bench: MetaBench) -> None:
    inode = await file(bench, "/a")
    await bench.write(inode, 7 * CHUNK, b"y" * 10)
    found = await check(bench)
    assert kinds(found) == ["wrong_length"] and found.exit_code == 4
    assert (await bench.stat("/a")).length == inode.length
    assert (await check(bench, repair=True)).exit_code == 1
    assert (await bench.stat("/a")).length == 7 * CHUNK + 10
    assert (await check(bench)).exit_code == 0


async def test_a_length_that_cannot_be_checked_does_not_end_the_check(bench: MetaBench) -> None:
    """One chain of the file is served by nobody; all that was found on others was lost with the error."""
    inode = await file(bench, "/a")
    await bench.write(inode, 7 * CHUNK, b"y" * 10)
    routing = bench.storage.cluster.routing
    lost = routing.chains[ChainId(3 - bench.storage.chain_of[ChunkId(inode.inode, 7)])]
    members = tuple(dataclasses.replace(member, state=PublicState.LASTSRV) for member in lost.members)
    chains = {**routing.chains, lost.chain_id: dataclasses.replace(lost, members=members)}
    bench.storage.cluster.learn(dataclasses.replace(routing, version=2, chains=chains))
    found = await check(bench, repair=True)
    assert kinds(found) == ["chain_unavailable", "chain_unavailable"] and found.exit_code == 4
    assert "the length of inode" in found.findings[-1].detail


async def test_a_file_that_is_open_may_have_bytes_behind_its_end(bench: MetaBench) -> None:
    inode = (await bench.create("/a", session=SESSION, layout=LAYOUT)).inode
    await bench.write(inode, 3 * CHUNK, b"y" * 10)
    assert (await check(bench, repair=True)).exit_code == 0
    await bench.close(inode, SESSION, exact=True)


async def test_a_file_that_is_being_freed_may_have_bytes_behind_its_end(bench: MetaBench) -> None:
    """A file that was written before it got its name, and then its directory was not there."""
    inode = (await bench.create("/a", session=SESSION, layout=LAYOUT)).inode
    await bench.write(inode, 3 * CHUNK, b"y" * 10)
    await bench.remove("/a")
    await bench.close(inode, SESSION)
    assert (await check(bench)).findings == []


async def test_a_file_that_is_truncated_during_the_copy(bench: MetaBench) -> None:
    inode = await file(bench, "/a")
    meta = LocalMeta(bench.context)

    async def cut(request: Any) -> None:
        meta.before = None
        await bench.truncate("/a", 10)

    meta.before = cut
    assert (await check(bench, meta=meta, repair=True)).exit_code == 0
    assert (await bench.stat("/a")).length == 10 < inode.length


async def test_a_replica_that_lacks_a_chunk(bench: MetaBench) -> None:
    inode = await file(bench, "/a")
    for number, target in ((1, 0), (2, 2)):
        chunk = ChunkId(inode.inode, number)
        chain = bench.cluster.routing.chains[bench.storage.chain_of[chunk]]
        bench.storage.lacking.add((chain.serving[target], chunk))
    found = await check(bench, repair=True)
    assert kinds(found) == ["missing_chunk"] * 2 and found.exit_code == 4


async def test_what_is_on_its_way_is_not_missing(bench: MetaBench) -> None:
    inode = await file(bench, "/a")
    chunk = ChunkId(inode.inode, 1)
    chain = bench.cluster.routing.chains[bench.storage.chain_of[chunk]]
    bench.storage.lacking.add((chain.serving[2], chunk))
    bench.storage.pending.add((chain.serving[0], chunk))
    assert (await check(bench)).exit_code == 0
    bench.storage.pending.clear()
    bench.clock.on_sleep = bench.storage.lacking.clear  # it has arrived before the second look
    assert (await check(bench)).exit_code == 0


async def test_a_chain_that_changes_is_read_again(bench: MetaBench) -> None:
    await file(bench, "/a")
    bench.storage.before = [lambda *_: None, lambda *_: ChainChanged("new version")]
    bench.cluster.upcoming = [make_routing(2)]
    found = await check(bench)
    assert found.exit_code == 0


@pytest.mark.parametrize("error", [Stopping(), PeerClosed(), DeadlineExceeded(), Overloaded(), DiskFailed()])
async def test_a_chain_is_read_again_after_a_process_of_it_has_ended(bench: MetaBench, error: ThreefsError) -> None:
    """The whole check ended where a storage process was stopped or started again meanwhile."""
    await file(bench, "/a")
    bench.storage.before = [lambda *_: None, lambda *_: error]
    assert (await check(bench)).exit_code == 0
    bench.storage.before = [lambda *_: error] * 99
    assert set(kinds(await check(bench))) == {"chain_unavailable"}


async def test_a_chain_without_a_target(bench: MetaBench) -> None:
    await file(bench, "/a")
    bench.storage.down = {"storage-2:1"}
    found = await check(bench)
    assert set(kinds(found)) == {"chain_unavailable"} and found.exit_code == 4


async def test_a_chain_that_lacks_copies_is_reported_and_is_no_finding(bench: MetaBench) -> None:
    await file(bench, "/a")
    cluster = bench.storage.cluster
    assert (await check(bench)).degraded_chains == []
    chain = next(iter(cluster.routing.chains.values()))
    members = (chain.members[0], dataclasses.replace(chain.members[1], state=PublicState.OFFLINE), *chain.members[2:])
    cluster.routing = dataclasses.replace(
        cluster.routing,
        chains={**cluster.routing.chains, chain.chain_id: dataclasses.replace(chain, members=members)},
    )
    found = await check(bench)
    assert found.degraded_chains == [chain.chain_id] and found.exit_code == 0
