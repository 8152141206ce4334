"""A mutation sent again returns its first result (I9), and such memories do not stay for ever."""

import asyncio
import dataclasses
import math
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from threefs_meta import transactions
from threefs_meta.ops.close import close
from threefs_meta.ops.create import create
from threefs_meta.ops.link import link
from threefs_meta.ops.lock import lock
from threefs_meta.ops.mkdir import mkdir
from threefs_meta.ops.mknod import mknod
from threefs_meta.ops.open import open_inode
from threefs_meta.ops.precreate import precreate
from threefs_meta.ops.publish import publish
from threefs_meta.ops.quota import set_quota
from threefs_meta.ops.remove import remove
from threefs_meta.ops.rename import rename
from threefs_meta.ops.reserve_append import reserve
from threefs_meta.ops.set_layout import set_layout
from threefs_meta.ops.setattr import set_attributes
from threefs_meta.ops.symlink import symlink
from threefs_meta.ops.sync import sync
from threefs_meta.ops.trash import set_trash
from threefs_meta.ops.truncate import truncate
from threefs_meta.ops.xattr import remove_xattr, set_xattr
from threefs_meta.store import keys

from tests.harness.meta_harness import CLIENT, SESSION, MetaBench, at
from threefs.errors import Conflict, InvalidArgument, MaybeCommitted, NoSpace, NotFound
from threefs.kv.engine_api import Transaction
from threefs.kv.rocks import RocksEngine
from threefs.kv.transaction import BufferedTransaction
from threefs.leases import REPLAYS_KEPT_S
from threefs.wire import meta_pb2 as pb

Operation = Callable[[Any, Any], Awaitable[Any]]


def requests(file: pb.Inode, unnamed: pb.Inode, ahead: pb.Inode) -> list[tuple[Operation, Any]]:
    """One of each, over a tree that has /d, /d/file and /other."""
    return [
        (create, pb.CreateRequest(place=at("/new"), exclusive=True)),
        (create, pb.CreateRequest(place=at("/d/file"), truncate=True, session=b"2" * 16)),
        (open_inode, pb.OpenRequest(place=at("/d/file"), session=b"3" * 16, truncate=True)),
        (close, pb.CloseRequest(inode=file.inode, session=SESSION, length_hint=7, written=True)),
        (sync, pb.SyncRequest(inode=file.inode, exact=True, written=True)),
        (mkdir, pb.MkdirRequest(place=at("/made"), mode=0o700)),
        (mkdir, pb.MkdirRequest(place=at("/p/q/r"), parents=True)),
        (remove, pb.RemoveRequest(place=at("/other"))),
        (remove, pb.RemoveRequest(place=at("/d"), recursive=True)),
        (rename, pb.RenameRequest(source=at("/other"), destination=at("/d/file"))),
        (rename, pb.RenameRequest(source=at("/d"), destination=at("/e"), no_replace=True)),
        (symlink, pb.SymlinkRequest(place=at("/link"), target=b"x")),
        (link, pb.LinkRequest(source=at("/other"), destination=at("/again"))),
        (set_attributes, pb.SetAttrRequest(place=at("/other"), mode=0o400)),
        (truncate, pb.TruncateRequest(place=at("/d/file"), length=3)),
        (mknod, pb.MknodRequest(place=at("/fifo"), type=pb.FIFO)),
        (rename, pb.RenameRequest(source=at("/other"), destination=at("/d"), exchange=True)),
        (set_xattr, pb.SetXattrRequest(place=at("/other"), name=b"user.new", value=b"v", create=True)),
        (remove_xattr, pb.RemoveXattrRequest(place=at("/other"), name=b"user.old")),
        (lock, pb.LockRequest(inode=file.inode, lock=pb.FileLock(kind=pb.FLOCK, type=pb.SHARED, end=(1 << 64) - 1))),
        (reserve, pb.ReserveRequest(inode=file.inode, session=SESSION, length=5)),
        (reserve, pb.ReserveRequest(inode=file.inode, session=SESSION, end=500)),
        (set_layout, pb.SetLayoutRequest(place=at("/d"), layout=pb.Layout(stripe=1))),
        (set_quota, pb.SetQuotaRequest(place=at("/d"), limit_bytes=1 << 40)),
        (set_trash, pb.SetTrashRequest(place=at("/d"), trash_s=60)),
        (create, pb.CreateRequest(place=at("/d"), unnamed=True, session=b"2" * 16)),
        (link, pb.LinkRequest(source=at("", unnamed.inode), destination=at("/named"))),
        (precreate, pb.PrecreateRequest(place=at("/d/new"), count=3, session=b"2" * 16)),
        (publish, pb.PublishRequest(inode=ahead.inode, session=b"4" * 16, place=at("/new"), length=7)),
        (publish, pb.PublishRequest(inode=ahead.inode, session=b"4" * 16, place=at("/other"), replace=True)),
        (remove, pb.RemoveRequest(place=at("/kept/file"))),
        (remove, pb.RemoveRequest(place=at("/kept/tree"), recursive=True)),
    ]


async def prepare(fs: MetaBench) -> tuple[pb.Inode, pb.Inode, pb.Inode]:
    await fs.mkdir("/d")
    await fs.create("/other")
    await fs.set_xattr("/other", b"user.old", b"value")
    file = (await fs.create("/d/file", session=SESSION)).inode
    await fs.write(file, 0, b"content")
    unnamed = (await fs.create("/", session=b"1" * 16, unnamed=True)).inode
    await fs.mkdir("/kept/tree/d", parents=True)
    await fs.create("/kept/file")
    await fs.set_trash("/kept", 1000)
    [ahead] = await fs.precreate("/new", session=b"4" * 16)
    return file, unnamed, ahead


async def everything(fs: MetaBench) -> list[tuple[bytes, bytes]]:
    return await fs.engine.begin().get_range(b"", b"\xff")


@pytest.mark.parametrize("number", range(len(requests(pb.Inode(), pb.Inode(), pb.Inode()))))
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.trouble(conflict_rate=0.2, unknown_rate=0.3)
async def test_every_mutation_is_made_once(bench: MetaBench, number: int, seed: int) -> None:
    operation, request = requests(*await prepare(bench))[number]
    request.mutation.CopyFrom(bench.mutation())
    copies = await asyncio.gather(*(operation(bench.context, request) for _ in range(3)))
    assert copies[0] == copies[1] == copies[2]
    before = await everything(bench)
    bench.clock.advance(60)
    assert await operation(bench.context, request) == copies[0]
    assert await everything(bench) == before, "the repetition has changed something"


#: Repairs are judged again each time; many changes at once have tests of their own; a delegation is granted only once.
ELSEWHERE = {"FsckRecheckRequest", "BatchRequest", "DelegateRequest"}


def test_no_mutation_is_left_out() -> None:
    tried = {type(request).__name__ for _, request in requests(pb.Inode(), pb.Inode(), pb.Inode())}
    kinds = pb.DESCRIPTOR.message_types_by_name.values()
    known = {kind.name for kind in kinds if kind.name.endswith("Request") and "mutation" in kind.fields_by_name}
    assert known == tried | ELSEWHERE


async def test_a_failure_is_tried_anew(bench: MetaBench) -> None:
    request = pb.MkdirRequest(mutation=bench.mutation(), place=at("/a/b"))
    with pytest.raises(FileNotFoundError):
        await mkdir(bench.context, request)
    await bench.mkdir("/a")
    await mkdir(bench.context, request)


async def test_an_attempt_that_arrives_behind_a_failed_repeat_fails_too(bench: MetaBench) -> None:
    """The client has heard that nothing was removed. The file that is there now is a newer one."""
    mutation = bench.mutation()
    repeat = pb.Mutation(client=mutation.client, request=mutation.request, again=True)
    with pytest.raises(NotFound):
        await remove(bench.context, pb.RemoveRequest(mutation=repeat, place=at("/a")))
    await bench.create("/a")
    for identity in (mutation, repeat):
        with pytest.raises(NotFound, match="/a"):
            await remove(bench.context, pb.RemoveRequest(mutation=identity, place=at("/a")))
    assert (await bench.stat("/a")).type == pb.FILE


async def test_a_failed_repeat_gets_the_reply_of_an_attempt_that_was_made_meanwhile(
    bench: MetaBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation = bench.mutation()
    repeat = pb.Mutation(client=mutation.client, request=mutation.request, again=True)
    keep = transactions._keep_failure
    made: list[pb.Inode] = []

    async def late(*args: Any) -> Any:
        if not made:
            made.append(await bench.mkdir("/a"))
            await mkdir(bench.context, pb.MkdirRequest(mutation=mutation, place=at("/a/b")))
        return await keep(*args)

    monkeypatch.setattr(transactions, "_keep_failure", late)
    reply = await mkdir(bench.context, pb.MkdirRequest(mutation=repeat, place=at("/a/b")))
    assert reply.inode.inode == (await bench.stat("/a/b")).inode


async def test_a_failure_behind_an_unknown_commit_is_recorded(
    bench: MetaBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit may come late: it must fail, too."""
    await bench.create("/a")
    request = pb.RemoveRequest(mutation=bench.mutation(), place=at("/a"))
    commit, late = bench.engine.commit, []

    async def hang(attempt: BufferedTransaction) -> None:
        monkeypatch.setattr(bench.engine, "commit", commit)
        late.append(attempt)
        await bench.rename("/a", "/b")
        raise MaybeCommitted("no answer")

    monkeypatch.setattr(bench.engine, "commit", hang)
    with pytest.raises(NotFound):
        await remove(bench.context, request)
    await bench.rename("/b", "/a")
    with pytest.raises(Conflict):
        await commit(late[0])
    with pytest.raises(NotFound):
        await remove(bench.context, request)


@pytest.mark.parametrize("again", [False, True])
async def test_a_change_that_may_have_been_made_does_not_fail_for_good_on_a_full_disk(
    bench: MetaBench, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    commit, is_lost = bench.engine.commit, again

    async def full(attempt: BufferedTransaction) -> None:
        nonlocal is_lost
        if is_lost:
            raise NoSpace("the disk is full")
        await commit(attempt)
        is_lost = True
        raise MaybeCommitted("no answer")

    async def unflushed(attempt: BufferedTransaction) -> None:
        raise NoSpace("the disk is full")

    mutation = bench.mutation()
    mutation.again = again
    request = pb.MkdirRequest(mutation=mutation, place=at("/a"))
    with monkeypatch.context() as patches:
        patches.setattr(bench.engine, "commit", full)
        patches.setattr(bench.engine, "confirm", unflushed)
        with pytest.raises(MaybeCommitted, match="full"):
            await mkdir(bench.context, request)
    assert (await mkdir(bench.context, request)).inode.inode == (await bench.stat("/a")).inode


async def test_an_identity_belongs_to_one_method(bench: MetaBench) -> None:
    mutation = bench.mutation()
    await mkdir(bench.context, pb.MkdirRequest(mutation=mutation, place=at("/a")))
    with pytest.raises(InvalidArgument, match="another method"):
        await remove(bench.context, pb.RemoveRequest(mutation=mutation, place=at("/a")))


async def test_old_memories_go_and_young_ones_stay(bench: MetaBench) -> None:

    async def make(fs: MetaBench, client: bytes, request: int) -> None:
        place = at(f"/{client[0]}.{request}")
        await create(fs.context, pb.CreateRequest(mutation=pb.Mutation(client=client, request=request), place=place))

    async def memories(fs: MetaBench) -> list[bytes]:
        return [key for key, _ in await fs.engine.begin().get_range(*keys.REPLAYS)]

    others = [bytes([number]) * 16 for number in (200, 201, 255)]
    for request in range(300):
        await make(bench, CLIENT, request + 1000)
    for client in others:
        await make(bench, client, 1)
    keep = math.ceil(REPLAYS_KEPT_S / bench.context.logical_clock.tick_s)
    await bench.pass_ticks(keep)
    await make(bench, CLIENT, 5000)
    await make(bench, others[1], 2)
    bench.clock.advance(10 * REPLAYS_KEPT_S)  # a clock alone, which may be wrong, does not count
    for _ in range(3):
        await bench.collector.expire_replays()
    assert len(await memories(bench)) == 305, "half an hour is not over"
    await bench.pass_ticks(2)
    for _ in range(3):
        await bench.collector.expire_replays()
    assert await memories(bench) == sorted([keys.replay(CLIENT, 5000), keys.replay(others[1], 2)])


async def test_what_is_done_outside_a_transaction_begins_behind_a_wait(tmp_path: Path) -> None:
    """Handlers are begun outside of any task, and get one when they wait. Asking chunks needs one."""
    bench = await MetaBench().start()
    engine = await RocksEngine.open(tmp_path / "store")
    asked = []

    async def ask() -> None:
        asked.append(True)

    async def attempt(tx: Transaction) -> str | transactions.NeedsChunkIo:
        return "done" if asked else transactions.NeedsChunkIo(ask)

    work = transactions.run_with_chunk_io(dataclasses.replace(bench.context, engine=engine), attempt)
    assert work.send(None) is None
    assert not asked
    with pytest.raises(StopIteration, match="done"):
        work.send(None)
    assert asked
    await engine.close()
