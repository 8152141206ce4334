"""Many changes at once come out as if each had been made alone."""

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threefs_meta.batch import batch_transaction
from threefs_meta.batch.batch_transaction import MAX_CHANGES
from threefs_meta.ops.create import create
from threefs_meta.ops.delegate import delegate
from threefs_meta.ops.remove import remove
from threefs_meta.ops.rename import rename
from threefs_meta.store import keys

from tests.harness.many_changes import answered, changed, create_of, publish_of, remove_of, rename_of, stored
from tests.harness.meta_harness import CLIENT, SESSION, MetaBench, at, with_bench
from threefs.errors import (
    AlreadyExists,
    InvalidArgument,
    IsADirectory,
    NotEmpty,
    NotFound,
    QuotaExceeded,
    SessionLost,
    ThreefsError,
    Unavailable,
)
from threefs.wire import meta_pb2 as pb

part = st.sampled_from(["a", "b", "closed", "link", "f", "g", ".", "..", ""])
path = st.lists(part, min_size=1, max_size=4).map("/".join)
leaf = st.tuples(st.sampled_from(["/", "/a", "/a/b", "/closed", "/a/link", "/none"]), st.sampled_from("xyz")).map(
    "/".join
)
change = st.one_of(
    st.builds(create_of, leaf),
    st.builds(remove_of, leaf),
    st.builds(rename_of, leaf, leaf, no_replace=st.booleans()),
    st.builds(rename_of, leaf, leaf),
    st.builds(create_of, path, exclusive=st.booleans(), parents=st.booleans(), session=st.sampled_from([b"", SESSION])),
    st.builds(remove_of, path, recursive=st.booleans(), kind=st.sampled_from([0, 1, 2])),
)


async def plant(fs: MetaBench) -> None:
    await fs.mkdir("/a/b", parents=True, mode=0o777)
    await fs.mkdir("/closed", mode=0o700)
    await fs.create("/closed/f")
    await fs.create("/a/f")
    await fs.symlink("/a/b", "/a/link")
    await fs.mkdir("/a/b/b", mode=0o777)
    for leaf in ("/x", "/a/y", "/a/b/x", "/closed/z"):
        await fs.create(leaf)
    await fs.link("/a/y", "/a/z")
    await fs.symlink("/a/b/z", "/z")  # to a name that is missing


async def singly(fs: MetaBench, changes: list[pb.Change]) -> list[int]:
    codes = []
    for one in changes:
        try:
            if one.WhichOneof("kind") == "create":
                request = pb.CreateRequest(mutation=fs.mutation(), caller=fs.caller)
                request.MergeFrom(one.create)
                await create(fs.context, request)
            elif one.WhichOneof("kind") == "rename":
                renaming = pb.RenameRequest(mutation=fs.mutation(), caller=fs.caller)
                renaming.MergeFrom(one.rename)
                await rename(fs.context, renaming)
            else:
                removal = pb.RemoveRequest(mutation=fs.mutation(), caller=fs.caller)
                removal.MergeFrom(one.remove)
                await remove(fs.context, removal)
            codes.append(0)
        except ThreefsError as error:
            codes.append(error.code)
    return codes


@given(st.lists(change, max_size=12), st.booleans())
@settings(max_examples=60)
@with_bench
async def test_as_one_by_one(fs: MetaBench, changes: list[pb.Change], trusted: bool) -> None:
    other = await MetaBench().start()
    for bench in (fs, other):
        await plant(bench)
        if not trusted:
            bench.caller = pb.Caller(uid=7, gid=7)
    assert await changed(fs, *changes) == await singly(other, changes)
    assert await stored(fs) == await stored(other)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.trouble(conflict_rate=0.2, unknown_rate=0.3)
async def test_each_change_is_made_once_however_often_it_is_asked_for(bench: MetaBench, seed: int) -> None:
    await plant(bench)
    mutation = pb.Mutation(client=CLIENT, request=1000)
    changes = [create_of(f"/a/{number % 5}/{number}", parents=True, exclusive=True) for number in range(20)]
    changes += [remove_of("/closed/f"), remove_of("/none"), create_of("/a/f", session=SESSION)]
    request = pb.BatchRequest(mutation=mutation, changes=changes)
    copies = await asyncio.gather(*(answered(bench, request) for _ in range(3)))
    codes = [0] * 21 + [NotFound.code, 0]
    inodes = [result.create.inode for result in copies[0].results]
    for copy in copies:
        assert [result.code for result in copy.results] == codes
        assert [result.create.inode for result in copy.results] == inodes
    before = await bench.engine.begin().get_range(b"", b"\xff")
    again = await answered(bench, request)
    assert [result.create.inode for result in again.results] == inodes
    assert await bench.engine.begin().get_range(b"", b"\xff") == before, "the repetition has changed something"


async def test_an_attempt_that_arrives_behind_a_failed_repeat_fails_too(bench: MetaBench) -> None:
    """What the first attempt made stays made; what the repeat could not make is not made later."""
    await bench.create("/x")
    changes = [remove_of("/x"), remove_of("/none"), create_of("/new")]
    mutation = pb.Mutation(client=CLIENT, request=1000)
    part = pb.BatchRequest(mutation=mutation, changes=changes[:1])
    assert [result.code for result in (await answered(bench, part)).results] == [0]
    repeat = pb.BatchRequest(mutation=pb.Mutation(client=CLIENT, request=1000, again=True), changes=changes)
    answer = await answered(bench, repeat)
    assert [result.code for result in answer.results] == [0, NotFound.code, 0]
    await bench.create("/none")
    late = pb.BatchRequest(mutation=mutation, changes=changes)
    assert [result.code for result in (await answered(bench, late)).results] == [0, NotFound.code, 0]
    assert (await bench.stat("/none")).type == pb.FILE


async def test_what_has_to_wait_for_chunks_is_left_out_for_good(bench: MetaBench) -> None:
    file = (await bench.create("/a", session=SESSION)).inode
    await bench.write(file, 0, b"content")
    file = await bench.close(file, SESSION, length_hint=7, written=True)
    changes = [create_of("/a", truncate=True), create_of("/new")]
    request = pb.BatchRequest(mutation=pb.Mutation(client=CLIENT, request=1000), changes=changes)
    for _ in range(2):
        reply = await answered(bench, request)
        assert [result.retry_alone for result in reply.results] == [True, False]
        assert await bench.stat("/a") == file and bench.chunk_numbers(file) == [0]
        assert (await bench.stat("/new")).inode == reply.results[1].create.inode.inode
    await bench.create("/a", truncate=True)  # as the client does then
    again = await answered(bench, request)
    assert again == reply


async def test_files_are_synced_and_closed_together(bench: MetaBench) -> None:
    made = [(await bench.create(f"/{number}", session=bytes([number]) * 16)).inode for number in range(3)]
    closes = [
        pb.Change(close=pb.CloseRequest(inode=inode.inode, session=bytes([number]) * 16, length_hint=number))
        for number, inode in enumerate(made)
    ]
    closes.append(pb.Change(close=pb.CloseRequest(inode=made[0].inode, session=b"x" * 16)))
    sync = pb.Change(sync=pb.SyncRequest(inode=made[0].inode, length_hint=9, written=True))
    none = pb.Change(sync=pb.SyncRequest(inode=77))
    assert await changed(bench, sync, none) == [0, NotFound.code]
    assert (await bench.stat("/0")).length == 9
    assert await changed(bench, *closes) == [0, 0, 0, SessionLost.code]
    assert [(await bench.stat(f"/{number}")).length for number in range(3)] == [9, 1, 2]
    assert await changed(bench, closes[0]) == [SessionLost.code], "it was closed"


async def test_files_are_renamed_together(bench: MetaBench) -> None:
    await plant(bench)
    x, y = await bench.stat("/x"), await bench.stat("/a/y")
    codes = await changed(
        bench,
        rename_of("/x", "/a/x"),
        rename_of("/a/x", "/closed/z"),
        rename_of("/a/y", "/a/z"),  # two names of one file: nothing is done
        rename_of("/a/none", "/a/other"),
        rename_of("/closed/z", "/a/z", no_replace=True),
        create_of("/x"),
    )
    assert codes == [0, 0, 0, NotFound.code, AlreadyExists.code, 0]
    assert (await bench.stat("/closed/z")).inode == x.inode != (await bench.stat("/x")).inode
    assert (await bench.stat("/a/y")).inode == (await bench.stat("/a/z")).inode == y.inode
    await bench.collect_all()


async def test_what_changes_where_paths_lead_is_left_out(bench: MetaBench) -> None:
    await plant(bench)
    changes = [
        rename_of("/a/b", "/closed/b"),
        rename_of("/x", "/a/y", exchange=True),
        rename_of("/x", "/new", whiteout=True),
        rename_of("/a/f", "/a/moved"),
    ]
    request = pb.BatchRequest(mutation=bench.mutation(), changes=changes)
    for _ in range(2):
        assert [result.retry_alone for result in (await answered(bench, request)).results] == [True] * 3 + [False]
    assert await bench.names("/a") == ["b", "link", "moved", "y", "z"]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.trouble(conflict_rate=0.2, unknown_rate=0.3)
async def test_files_are_renamed_once_however_often_it_is_asked_for(bench: MetaBench, seed: int) -> None:
    await plant(bench)
    for number in range(8):
        await bench.create(f"/a/{number}")
    changes = [rename_of(f"/a/{number}", f"/a/{(number + 1) % 8}") for number in range(8)]
    request = pb.BatchRequest(mutation=bench.mutation(), changes=changes)
    first, *others = await asyncio.gather(*(answered(bench, request) for _ in range(3)))
    assert others == [first, first] and not any(result.code for result in first.results)
    assert [name for name in await bench.names("/a") if name.isdigit()] == ["0"]


async def test_a_rename_in_a_batch_reports_a_delegation(bench: MetaBench) -> None:
    directory = (await bench.mkdir("/d")).inode
    for name in ("/d/1", "/d/2"):
        await bench.create(name)
    number = (
        await delegate(bench.context, pb.DelegateRequest(mutation=bench.mutation(), directory=directory))
    ).delegation
    moves = [
        pb.RenameRequest(
            source=pb.Place(base=directory, path=old), destination=pb.Place(base=directory, path=b"new " + old)
        )
        for old in (b"1", b"2")
    ]
    changes = [pb.Change(rename=move) for move in moves]
    bench._request += len(changes)
    mutation = pb.Mutation(client=CLIENT, request=bench._request - 1)
    request = pb.BatchRequest(mutation=mutation, changes=changes)
    assert number and [one.file.delegation for one in (await answered(bench, request)).results] == [number] * 2
    assert [one.file.delegation for one in (await answered(bench, request)).results] == [0] * 2, "told once"
    assert await bench.names("/d") == ["new 1", "new 2"]


async def test_a_failed_change_leaves_nothing_behind(bench: MetaBench) -> None:
    await bench.mkdir("/d")
    await bench.set_quota("/d", limit_inodes=2)
    await bench.count_all()
    # It makes directories before the quota refuses the file.
    await bench.create("/d/1")
    await bench.create("/d/2")
    await bench.count_all()
    codes = await changed(
        bench, create_of("/d/x/y/z", parents=True), create_of("/e/f", parents=True), create_of("/e/f", exclusive=True)
    )
    assert codes == [QuotaExceeded.code, 0, AlreadyExists.code]
    assert await bench.names("/d") == ["1", "2"]
    assert await changed(bench, remove_of("/e"), remove_of("/e", kind=pb.NOT_DIRECTORY)) == [
        NotEmpty.code,
        IsADirectory.code,
    ]


async def test_one_that_fails_among_new_files_takes_none_with_it(bench: MetaBench) -> None:
    await bench.mkdir("/full")
    await bench.set_quota("/full", limit_inodes=1)
    await bench.create("/full/1")
    await bench.count_all()
    changes = create_of("/1"), create_of("/full/2"), create_of("/3", session=SESSION)
    reply = await answered(bench, pb.BatchRequest(mutation=bench.mutation(), changes=changes))
    assert [result.code for result in reply.results] == [0, QuotaExceeded.code, 0]
    assert [result.create.created for result in reply.results] == [True, False, True]
    assert await bench.names("/") == ["1", "3", "full"] and await bench.names("/full") == ["1"]


@pytest.mark.parametrize(("left", "batches", "size"), [(256, 16, 256), (300, 4, 256), (300, 8, 64)])
async def test_batches_at_the_end_of_a_block_of_numbers_wait_for_the_next_one(
    bench: MetaBench, left: int, batches: int, size: int
) -> None:
    """All found the same numbers left. Those that came second were left to their clients, change by change."""
    numbers = bench.context.allocator
    await numbers.refill()
    while numbers.left > left:
        await numbers.allocate()

    async def alone(batch: int) -> int:
        identity = pb.Mutation(client=CLIENT, request=10_000 + 1000 * batch)
        changes = [create_of(f"/{batch}-{number}") for number in range(size)]
        reply = await answered(bench, pb.BatchRequest(mutation=identity, changes=changes))
        return sum(result.retry_alone for result in reply.results)

    assert await asyncio.gather(*map(alone, range(batches))) == [0] * batches


async def test_what_fails_together_is_not_tried_together_again(bench: MetaBench) -> None:
    await bench.mkdir("/full")
    await bench.set_quota("/full", limit_inodes=1)
    first = (await bench.create("/full/1")).inode.inode
    await bench.count_all()
    assert await changed(bench, *(create_of(f"/full/{n}", exclusive=True) for n in range(2, 32)))
    assert (await bench.create("/1")).inode.inode < first + 100, "each try takes numbers"


async def test_what_was_made_is_not_made_again_beside_new_files(bench: MetaBench) -> None:
    changes = create_of("/d/1"), create_of("/2"), create_of("/d/3")
    request = pb.BatchRequest(mutation=pb.Mutation(client=CLIENT, request=1000), changes=changes)
    assert [result.code for result in (await answered(bench, request)).results] == [NotFound.code, 0, NotFound.code]
    await bench.mkdir("/d")
    await bench.remove("/2")
    assert [result.code for result in (await answered(bench, request)).results] == [0, 0, 0]
    assert await bench.names("/") == ["d"] and await bench.names("/d") == ["1", "3"]


async def test_new_files_beside_one_behind_a_link_are_made_in_their_own_directory(bench: MetaBench) -> None:
    await bench.mkdir("/a")
    await bench.mkdir("/b")
    await bench.symlink("/b/x", "/a/x")
    assert await changed(bench, *(create_of(f"/a/{name}") for name in "xyz")) == [0, 0, 0]
    assert await bench.names("/a") == ["x", "y", "z"] and await bench.names("/b") == ["x"]


async def test_each_way_of_changing_a_directory_changes_its_time(bench: MetaBench) -> None:
    times = [(await bench.mkdir("/d")).mtime_ns]
    for changes in ((create_of("/d/1"), create_of("/d/2")), (create_of("/d/3"),), (remove_of("/d/1"),)):
        bench.clock.advance(5)
        assert not any(await changed(bench, *changes))
        times.append((await bench.stat("/d")).mtime_ns)
    assert times == sorted(set(times))


async def test_a_directory_keeps_the_time_of_the_last_change_in_it(bench: MetaBench) -> None:
    for name in ("/d", "/gone", "/other"):
        await bench.mkdir(name)
    other = await bench.stat("/other")
    await bench.create("/gone/f")
    bench.clock.advance(5)
    codes = await changed(
        bench,
        create_of("/d/1"),
        create_of("/d/2"),
        remove_of("/gone/f"),
        remove_of("/gone"),
        create_of("/other/new/file", exclusive=True),
        remove_of("/d/2"),
    )
    assert codes == [0, 0, 0, 0, NotFound.code, 0]
    directory, top = await bench.stat("/d"), await bench.stat("/")
    assert directory.mtime_ns == directory.ctime_ns > other.mtime_ns
    assert directory.mtime_ns >= (await bench.stat("/d/1")).birth_ns
    assert top.mtime_ns > other.mtime_ns
    assert await bench.stat("/other") == other, "nothing was changed in it"
    await bench.collect_all()


@pytest.mark.slow
async def test_too_much_for_one_transaction_is_divided(bench: MetaBench) -> None:
    changes = [create_of(f"/{number}" + "/y" * 20, parents=True) for number in range(MAX_CHANGES)]
    assert await changed(bench, *changes) == [0] * MAX_CHANGES
    made = await bench.engine.begin().get_range(*keys.REPLAYS)
    assert 1 < len(made) < 16, "a record of each transaction"


async def test_limits(bench: MetaBench) -> None:
    assert await changed(bench) == []
    with pytest.raises(InvalidArgument, match=str(MAX_CHANGES)):
        await changed(bench, *[create_of("/a")] * (MAX_CHANGES + 1))
    for mutation in (pb.Mutation(request=1), pb.Mutation(client=CLIENT, request=(1 << 64) - 1)):
        with pytest.raises(InvalidArgument, match="identity"):
            await changed(bench, create_of("/a"), mutation=mutation)
    bad = pb.Change(create=pb.CreateRequest(place=at("/a"), mode=0o10000))
    assert await changed(bench, pb.Change(), bad) == [InvalidArgument.code] * 2
    single = bench.mutation()
    await create(bench.context, pb.CreateRequest(mutation=single, place=at("/a")))
    with pytest.raises(InvalidArgument, match="another method"):
        await changed(bench, create_of("/a"), mutation=single)
    assert [key for key, _ in await bench.engine.begin().get_range(*keys.REPLAYS)] == [
        keys.replay(CLIENT, single.request)
    ]


async def test_what_may_succeed_later_is_left_out_and_the_others_are_made(bench: MetaBench) -> None:
    await bench.create("/b")
    routing = bench.cluster.routing
    bench.cluster.routing = replace(routing, tables={})
    request = pb.BatchRequest(mutation=bench.mutation(), changes=[create_of("/a"), remove_of("/b")])
    assert [result.retry_alone for result in (await answered(bench, request)).results] == [True, False]
    assert await bench.names("/") == []
    bench.cluster.routing = routing
    assert await changed(bench, create_of("/a")) == [0]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.trouble(conflict_rate=0.1, unknown_rate=0.1)
async def test_what_is_removed_together_goes_into_the_trash_together(bench: MetaBench, seed: int) -> None:
    await plant(bench)
    await bench.set_trash("/a", 1000)
    changes = [
        remove_of("/a/f"),
        remove_of("/a/none"),
        create_of("/a/g"),
        remove_of("/a/g"),
        remove_of("/a/b", recursive=True),
        remove_of("/a/b/b"),
        remove_of("/closed", recursive=True),
    ]
    codes = await changed(bench, *changes)
    assert [bool(code) for code in codes] == [False, True, False, False, False, True, False]
    assert sorted(item.path for item in await bench.trash()) == [b"/a/b", b"/a/f", b"/a/g"]


def test_they_are_pieces_of_the_reply() -> None:
    create = pb.CreateReply(inode=pb.Inode(inode=5, name=b"n" * 300), created=True)
    file = pb.InodeReply(inode=pb.Inode(inode=6))
    told = pb.InodeReply(delegation=8).SerializeToString()
    pieces = [
        batch_transaction.successful_result("create", 1 << 40, create.SerializeToString() + told),
        *(
            batch_transaction.successful_result(kind, 7, file.SerializeToString())
            for kind in ("rename", "close", "sync")
        ),
        batch_transaction.successful_result("remove", 0, pb.RemoveReply(changed_ns=9).SerializeToString()),
        batch_transaction.retry_alone_result(10),
        batch_transaction.failed_result(NotFound("x" * 3000)),
        batch_transaction.serialized_result(pb.Changed(file=file, request=11)),
    ]
    create.delegation = 8
    assert pb.BatchReply.FromString(b"".join(pieces)) == pb.BatchReply(
        results=[
            pb.Changed(create=create, request=1 << 40),
            *[pb.Changed(file=file, request=7)] * 3,
            pb.Changed(remove=pb.RemoveReply(changed_ns=9)),
            pb.Changed(retry_alone=True, request=10),
            pb.Changed(code=NotFound.code, message="x" * 1024),
            pb.Changed(file=file, request=11),
        ]
    )


async def test_changes_that_need_no_inode_number_go_on_while_none_can_be_got(bench: MetaBench) -> None:
    for name in ("/a", "/b"):
        await bench.create(name)
    allocator = bench.context.allocator

    async def refused() -> None:
        raise Unavailable("no manager answers")

    allocator._report = refused
    while allocator.left > 1:
        await allocator.allocate()
    changes = [remove_of("/a"), create_of("/c"), create_of("/d"), create_of("/e"), remove_of("/b")]
    reply = await answered(bench, pb.BatchRequest(mutation=bench.mutation(), changes=changes))
    assert [result.retry_alone for result in reply.results] == [False, False, True, True, False]
    assert await bench.names("/") == ["c"]


async def test_removals_and_publications_that_need_an_inode_number_hold_up_no_others(bench: MetaBench) -> None:
    """The first removal makes the trash of an owner, and the publication a directory. All changes failed with them."""
    await bench.mkdir("/kept")
    for name in ("/kept/a", "/b", "/c"):
        await bench.create(name)
    await bench.set_trash("/kept", 1000)
    [made] = await bench.precreate("/missing/d")
    allocator = bench.context.allocator

    async def refused() -> None:
        raise Unavailable("no manager answers")

    allocator._report = refused
    while allocator.left:
        await allocator.allocate()
    publication = publish_of(made, "/missing/d")
    publication.publish.parents = True
    changes = [remove_of("/b"), remove_of("/kept/a"), publication, remove_of("/c")]
    reply = await answered(bench, pb.BatchRequest(mutation=bench.mutation(), changes=changes))
    assert [result.retry_alone for result in reply.results] == [False, True, True, False]
    assert await bench.names("/") == [".trash", "kept"]
