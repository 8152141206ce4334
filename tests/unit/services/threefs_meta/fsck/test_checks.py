"""Judgements of single records. What comes of them is tested in tests/unit/client/threefs_fsck/test_metadata.py."""

from threefs_meta.fsck import checks
from threefs_meta.store import keys
from threefs_meta.transactions import run_readonly

from tests.harness import damage
from tests.harness.meta_harness import SESSION, MetaBench
from threefs.ids import ROOT
from threefs.wire import meta_pb2 as pb


async def kinds(bench: MetaBench, **subject: object) -> list[int]:
    asked = pb.FsckSubject(**subject)  # type: ignore[arg-type]
    return [problem.kind for problem in await run_readonly(bench.context, lambda ns: checks.check_subject(ns, asked))]


async def test_what_does_not_exist_is_not_wrong(bench: MetaBench) -> None:
    for key in (keys.entry(1, b"x"), keys.inode(9), keys.removal(1, 9), keys.times(9), b"CONF|x", b"other"):
        assert await kinds(bench, key=key) == []
    assert await kinds(bench, inode=9) == []
    assert await kinds(bench, inode=9, loop=True) == []
    assert await kinds(bench, inode=ROOT) == []


async def test_names_that_were_brought_are_looked_at_again(bench: MetaBench) -> None:
    inode = (await bench.create("/a")).inode
    right = pb.FsckName(inode=inode.inode, parent=ROOT, name=b"a")
    wrong = pb.FsckName(inode=inode.inode, parent=ROOT, name=b"b")
    assert await kinds(bench, inode=inode.inode, names=[right]) == []
    assert await kinds(bench, inode=inode.inode, names=[right, right, wrong]) == []
    assert await kinds(bench, inode=inode.inode, names=[wrong]) == [pb.ORPHAN]


async def test_names_are_not_counted_when_the_inode_has_changed_since(bench: MetaBench) -> None:
    inode = (await bench.create("/a")).inode
    assert await kinds(bench, inode=inode.inode, ctime_ns=inode.ctime_ns) == [pb.ORPHAN]
    assert await kinds(bench, inode=inode.inode, ctime_ns=inode.ctime_ns - 1) == []


async def test_the_way_up(bench: MetaBench) -> None:
    await bench.mkdir("/a/b/c", parents=True)
    inner = await bench.stat("/a/b/c")
    assert await kinds(bench, inode=inner.inode, loop=True) == []
    middle = await bench.stat("/a/b")
    await damage.put_inode(bench, pb.Inode(inode=middle.inode, type=pb.DIRECTORY, nlink=1, parent=99, name=b"b"))
    assert await kinds(bench, inode=inner.inode, loop=True) == []  # it ends, if not where it should
    await damage.put_inode(bench, middle)


async def test_an_inode_under_the_number_of_another(bench: MetaBench) -> None:
    inode = (await bench.create("/a")).inode
    value = await damage.get(bench, keys.inode(inode.inode))
    await damage.put(bench, keys.inode(inode.inode + 1), value)
    assert await kinds(bench, key=keys.inode(inode.inode + 1)) == [pb.UNREADABLE_RECORD]
    assert await kinds(bench, key=keys.inode(inode.inode)) == []
    await damage.put(bench, keys.inode(inode.inode + 1), None)


async def test_a_file_without_a_name_that_no_client_keeps_is_reported(bench: MetaBench) -> None:
    made = (await bench.create("/", session=SESSION, unnamed=True)).inode
    assert await kinds(bench, inode=made.inode) == []
    key = keys.session(made.inode, SESSION)
    value = await bench.engine.begin().get(key)
    assert value is not None
    await damage.put(bench, key, None)
    assert await kinds(bench, inode=made.inode) == [pb.NOT_QUEUED]
    await damage.put(bench, key, value)


async def test_a_file_without_a_name_that_is_closed_during_the_scan_has_changed(bench: MetaBench) -> None:
    """It has come into the queue behind the back of whoever had looked there."""
    made = (await bench.create("/", session=SESSION, unnamed=True)).inode
    bench.clock.advance(1)
    await bench.close(made, SESSION)
    assert await kinds(bench, inode=made.inode, ctime_ns=made.ctime_ns) == []
