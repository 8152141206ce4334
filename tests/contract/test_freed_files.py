"""A removed file from the moment in which it may be freed: who comes before its mark keeps it, and who comes after the
mark hears that it is gone."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from threefs_meta.ops.stat import stat
from threefs_meta.store import keys
from threefs_meta.store.namespace import Namespace

from tests.harness import damage
from tests.harness.fsck import LocalMeta, check_metadata
from tests.harness.meta_harness import SESSION, MetaBench, at
from tests.unit.services.threefs_meta.test_garbage_collector import left, served_by_nobody, written
from threefs.errors import NotFound
from threefs.ids import ROOT
from threefs.kv.engine_api import Transaction
from threefs.layout import MIN_CHUNK_BYTES, from_wire
from threefs.wire import meta_pb2 as pb


async def found_by_number(fs: MetaBench, inode: pb.Inode) -> pb.Inode:
    return (await stat(fs.context, pb.StatRequest(place=at("", inode.inode)))).inode


def after_first(fs: MetaBench, step: str, action: Callable[[], Awaitable[object]]) -> list[object]:
    """Do something when a step of the collector has read what it needs, before its transaction ends."""
    original = getattr(fs.collector, step)
    done: list[object] = []

    async def interrupted(ns: Namespace, what: Any) -> Any:
        found = await original(ns, what)
        if not done:
            done.append(await action())
        return found

    setattr(fs.collector, step, interrupted)
    return done


async def partly_freed(bench: MetaBench) -> pb.Inode:
    """A removed file has lost what it had on one of its two chains; the other one takes no removals."""
    layout = pb.Layout(chunk_bytes=MIN_CHUNK_BYTES, stripe=2)
    file = (await bench.create("/a", session=SESSION, layout=layout)).inode
    for number in range(2):
        await bench.write(file, number * MIN_CHUNK_BYTES, b"data")
    file = await bench.close(file, SESSION, length_hint=MIN_CHUNK_BYTES + 4, written=True)
    await bench.remove("/a")
    await bench.pass_lease()
    away = bench.chunks.chain_of(from_wire(file.layout), 1)
    bench.cluster.learn(served_by_nobody(bench.cluster.routing, away))
    await bench.collector.collect()
    assert bench.chunk_numbers(file) == [1]
    return file


async def test_a_reader_that_comes_too_late_takes_no_chunk_that_is_gone_for_a_hole(bench: MetaBench) -> None:
    """It asks for the inode: a file that existed could only have a hole there."""
    file = await partly_freed(bench)
    with pytest.raises(NotFound):
        await found_by_number(bench, file)


async def test_a_file_that_is_being_freed_cannot_be_held(bench: MetaBench) -> None:
    file = await partly_freed(bench)
    other = (await bench.create("/b")).inode
    assert list((await bench.renew(hold=[file.inode, other.inode])).gone) == [file.inode]
    assert await left(bench, keys.holds(file.inode)) == 0 and await left(bench, keys.holds(other.inode)) == 1


@pytest.mark.parametrize("step", ["_partition", "_mark"])
async def test_a_file_that_is_held_at_the_last_moment_stays(bench: MetaBench, step: str) -> None:
    """The renewal came between the look at the holds and the first removal of a chunk."""
    file = await written(bench, "/a")
    await bench.remove("/a")
    await bench.pass_lease()
    came = after_first(bench, step, lambda: bench.renew(hold=[file.inode]))
    await bench.collect_all()
    assert came and bench.chunk_numbers(file) == [0] and (await found_by_number(bench, file)).length == 4
    await bench.renew(drop=[file.inode])
    await bench.collect_all()
    assert bench.chunk_numbers(file) == []


@pytest.mark.parametrize("step", ["_partition", "_mark"])
async def test_an_open_file_that_keeps_changing_holds_up_no_other(bench: MetaBench, step: str) -> None:
    """Each look at the queue was a change that depended on it, and so a conflict: nothing was freed any more."""
    file, log = await written(bench, "/a"), await written(bench, "/log")
    await bench.remove("/a")
    await bench.remove("/log")
    await bench.pass_lease()
    if step == "_partition":
        await bench.renew(hold=[log.inode])
    else:  # it is opened between the look and the mark
        after_first(bench, "_partition", lambda: bench.renew(hold=[log.inode]))
    original = getattr(bench.collector, step)

    async def with_change(ns: Namespace, what: Any) -> Any:
        found = await original(ns, what)
        await bench.context.transact(grow)
        return found

    async def grow(tx: Transaction) -> None:
        ns = bench.context.namespace(tx)
        inode = await ns.require_inode(log.inode)
        inode.length += 1
        ns.put_inode(inode)

    setattr(bench.collector, step, with_change)
    await bench.collector.collect()
    assert bench.chunk_numbers(file) == [] and bench.chunk_numbers(log) == [0]


@pytest.mark.parametrize("step", ["_partition", "_mark"])
async def test_a_file_that_gets_its_name_back_keeps_its_bytes(bench: MetaBench, step: str) -> None:
    """A repair came between the look at the queue and the first removal of a chunk: zeros, without an error."""
    file = await written(bench, "/a")
    await bench.remove("/a")
    await bench.pass_lease()
    await damage.put_entry(bench, ROOT, b"a", file.inode, file.type)

    async def repair() -> None:
        assert (await check_metadata(LocalMeta(bench.context), repair=True)).exit_code == 1

    came = after_first(bench, step, repair)
    await bench.collect_all()
    assert came and (await bench.stat("/a")).length == 4 and bench.chunk_numbers(file) == [0]


async def test_a_repair_leaves_a_file_that_is_being_freed(bench: MetaBench) -> None:
    """It came before the first removal of a chunk. The file had its name, and was freed: zeros, without an error."""
    file = await written(bench, "/a")
    await bench.remove("/a")
    await bench.pass_lease()
    await damage.put_entry(bench, ROOT, b"a", file.inode, file.type)
    free = bench.collector._free
    found: list[str] = []

    async def after_repair(item: Any) -> bool:
        report = await check_metadata(LocalMeta(bench.context), repair=True)
        found.extend(finding.kind for finding in report.findings)
        return await free(item)

    bench.collector._free = after_repair  # type: ignore[method-assign]
    await bench.collect_all()
    assert found == ["dangling_entry"] and await bench.names("/") == [] and bench.chunk_numbers(file) == []
