"""Many changes at once come out as if each had been made alone."""

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threefs_meta.batch.engine import MOST_CHANGES
from threefs_meta.ops.create import create
from threefs_meta.ops.delegate import delegate
from threefs_meta.ops.remove import remove
from threefs_meta.ops.rename import rename
from threefs_meta.store import keys

from tests.harness.many_changes import answered, changed, create_of, remove_of, rename_of, stored
from tests.harness.meta_harness import CLIENT, SESSION, MetaBench, at, run
from threefs.errors import (
    AlreadyExists,
    InvalidArgument,
    IsADirectory,
    NotEmpty,
    NotFound,
    QuotaExceeded,
    SessionLost,
    ThreefsError,
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
def test_as_one_by_one(changes: list[pb.Change], trusted: bool) -> None:
    async def test(fs: MetaBench) -> None:
        other = await MetaBench().start()
        for bench in (fs, other):
            await plant(bench)
            if not trusted:
                bench.caller = pb.Caller(uid=7, gid=7)
        assert await changed(fs, *changes) == await singly(other, changes)
        assert await stored(fs) == await stored(other)

    run(test)


@pytest.mark.parametrize("seed", range(4))
def test_each_change_is_made_once_however_often_it_is_asked_for(seed: int) -> None:
    async def test(fs: MetaBench) -> None:
        await plant(fs)
        mutation = pb.Mutation(client=CLIENT, request=1000)
        changes = [create_of(f"/a/{number % 5}/{number}", parents=True, exclusive=True) for number in range(20)]
        changes += [remove_of("/closed/f"), remove_of("/none"), create_of("/a/f", session=SESSION)]
        request = pb.BatchRequest(mutation=mutation, changes=changes)
        copies = await asyncio.gather(*(answered(fs, request) for _ in range(3)))
        codes = [0] * 21 + [NotFound.code, 0]
        inodes = [result.create.inode for result in copies[0].results]
        for copy in copies:
            assert [result.code for result in copy.results] == codes
            assert [result.create.inode for result in copy.results] == inodes
        before = await fs.engine.begin().get_range(b"", b"\xff")
        again = await answered(fs, request)
        assert [result.create.inode for result in again.results] == inodes
        assert await fs.engine.begin().get_range(b"", b"\xff") == before, "the repetition has changed something"

    run(test, conflict_rate=0.2, unknown_rate=0.3, seed=seed)


def test_what_has_to_wait_for_chunks_is_left_out_for_good() -> None:
    async def test(fs: MetaBench) -> None:
        file = (await fs.create("/a", session=SESSION)).inode
        await fs.write(file, 0, b"content")
        file = await fs.close(file, SESSION, length_hint=7, written=True)
        changes = [create_of("/a", truncate=True), create_of("/new")]
        request = pb.BatchRequest(mutation=pb.Mutation(client=CLIENT, request=1000), changes=changes)
        for _ in range(2):
            reply = await answered(fs, request)
            assert [result.retry_alone for result in reply.results] == [True, False]
            assert await fs.stat("/a") == file and fs.chunk_numbers(file) == [0]
            assert (await fs.stat("/new")).inode == reply.results[1].create.inode.inode
        await fs.create("/a", truncate=True)  # as the client does then
        again = await answered(fs, request)
        assert again == reply

    run(test)


def test_files_are_synced_and_closed_together() -> None:
    async def test(fs: MetaBench) -> None:
        made = [(await fs.create(f"/{number}", session=bytes([number]) * 16)).inode for number in range(3)]
        closes = [
            pb.Change(close=pb.CloseRequest(inode=inode.inode, session=bytes([number]) * 16, length_hint=number))
            for number, inode in enumerate(made)
        ]
        closes.append(pb.Change(close=pb.CloseRequest(inode=made[0].inode, session=b"x" * 16)))
        sync = pb.Change(sync=pb.SyncRequest(inode=made[0].inode, length_hint=9, written=True))
        none = pb.Change(sync=pb.SyncRequest(inode=77))
        assert await changed(fs, sync, none) == [0, NotFound.code]
        assert (await fs.stat("/0")).length == 9
        assert await changed(fs, *closes) == [0, 0, 0, SessionLost.code]
        assert [(await fs.stat(f"/{number}")).length for number in range(3)] == [9, 1, 2]
        assert await changed(fs, closes[0]) == [SessionLost.code], "it was closed"

    run(test)


def test_files_are_renamed_together() -> None:
    async def test(fs: MetaBench) -> None:
        await plant(fs)
        x, y = await fs.stat("/x"), await fs.stat("/a/y")
        codes = await changed(
            fs,
            rename_of("/x", "/a/x"),
            rename_of("/a/x", "/closed/z"),
            rename_of("/a/y", "/a/z"),  # two names of one file: nothing is done
            rename_of("/a/none", "/a/other"),
            rename_of("/closed/z", "/a/z", no_replace=True),
            create_of("/x"),
        )
        assert codes == [0, 0, 0, NotFound.code, AlreadyExists.code, 0]
        assert (await fs.stat("/closed/z")).inode == x.inode != (await fs.stat("/x")).inode
        assert (await fs.stat("/a/y")).inode == (await fs.stat("/a/z")).inode == y.inode
        await fs.collect_all()

    run(test)


def test_what_changes_where_paths_lead_is_left_out() -> None:
    async def test(fs: MetaBench) -> None:
        await plant(fs)
        changes = [
            rename_of("/a/b", "/closed/b"),
            rename_of("/x", "/a/y", exchange=True),
            rename_of("/x", "/new", whiteout=True),
            rename_of("/a/f", "/a/moved"),
        ]
        request = pb.BatchRequest(mutation=fs.mutation(), changes=changes)
        for _ in range(2):
            assert [result.retry_alone for result in (await answered(fs, request)).results] == [True] * 3 + [False]
        assert await fs.names("/a") == ["b", "link", "moved", "y", "z"]

    run(test)


@pytest.mark.parametrize("seed", range(3))
def test_files_are_renamed_once_however_often_it_is_asked_for(seed: int) -> None:
    async def test(fs: MetaBench) -> None:
        await plant(fs)
        for number in range(8):
            await fs.create(f"/a/{number}")
        changes = [rename_of(f"/a/{number}", f"/a/{(number + 1) % 8}") for number in range(8)]
        request = pb.BatchRequest(mutation=fs.mutation(), changes=changes)
        first, *others = await asyncio.gather(*(answered(fs, request) for _ in range(3)))
        assert others == [first, first] and not any(result.code for result in first.results)
        assert [name for name in await fs.names("/a") if name.isdigit()] == ["0"]

    run(test, conflict_rate=0.2, unknown_rate=0.3, seed=seed)


def test_a_claim_is_told_to_who_renames_among_others() -> None:
    async def test(fs: MetaBench) -> None:
        directory = (await fs.mkdir("/d")).inode
        for name in ("/d/1", "/d/2"):
            await fs.create(name)
        number = (await delegate(fs.context, pb.DelegateRequest(mutation=fs.mutation(), directory=directory))).claim
        moves = [
            pb.RenameRequest(
                source=pb.Place(base=directory, path=old), destination=pb.Place(base=directory, path=b"new " + old)
            )
            for old in (b"1", b"2")
        ]
        changes = [pb.Change(rename=move) for move in moves]
        fs._request += len(changes)
        mutation = pb.Mutation(client=CLIENT, request=fs._request - 1)
        request = pb.BatchRequest(mutation=mutation, changes=changes)
        assert number and [one.file.claim for one in (await answered(fs, request)).results] == [number] * 2
        assert [one.file.claim for one in (await answered(fs, request)).results] == [0] * 2, "told once"
        assert await fs.names("/d") == ["new 1", "new 2"]

    run(test)


def test_a_failed_change_leaves_nothing_behind() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.mkdir("/d")
        await fs.set_quota("/d", limit_inodes=2)
        await fs.count_all()
        # It makes directories before the quota refuses the file.
        await fs.create("/d/1")
        await fs.create("/d/2")
        await fs.count_all()
        codes = await changed(
            fs, create_of("/d/x/y/z", parents=True), create_of("/e/f", parents=True), create_of("/e/f", exclusive=True)
        )
        assert codes == [QuotaExceeded.code, 0, AlreadyExists.code]
        assert await fs.names("/d") == ["1", "2"]
        assert await changed(fs, remove_of("/e"), remove_of("/e", kind=pb.NOT_DIRECTORY)) == [
            NotEmpty.code,
            IsADirectory.code,
        ]

    run(test)


def test_one_that_fails_among_new_files_takes_none_with_it() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.mkdir("/full")
        await fs.set_quota("/full", limit_inodes=1)
        await fs.create("/full/1")
        await fs.count_all()
        changes = create_of("/1"), create_of("/full/2"), create_of("/3", session=SESSION)
        reply = await answered(fs, pb.BatchRequest(mutation=fs.mutation(), changes=changes))
        assert [result.code for result in reply.results] == [0, QuotaExceeded.code, 0]
        assert [result.create.created for result in reply.results] == [True, False, True]
        assert await fs.names("/") == ["1", "3", "full"] and await fs.names("/full") == ["1"]

    run(test)


def test_what_fails_together_is_not_tried_together_again() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.mkdir("/full")
        await fs.set_quota("/full", limit_inodes=1)
        first = (await fs.create("/full/1")).inode.inode
        await fs.count_all()
        assert await changed(fs, *(create_of(f"/full/{n}", exclusive=True) for n in range(2, 32)))
        assert (await fs.create("/1")).inode.inode < first + 100, "each try takes numbers"

    run(test)


def test_what_was_made_is_not_made_again_beside_new_files() -> None:
    async def test(fs: MetaBench) -> None:
        changes = create_of("/d/1"), create_of("/2"), create_of("/d/3")
        request = pb.BatchRequest(mutation=pb.Mutation(client=CLIENT, request=1000), changes=changes)
        assert [result.code for result in (await answered(fs, request)).results] == [NotFound.code, 0, NotFound.code]
        await fs.mkdir("/d")
        await fs.remove("/2")
        assert [result.code for result in (await answered(fs, request)).results] == [0, 0, 0]
        assert await fs.names("/") == ["d"] and await fs.names("/d") == ["1", "3"]

    run(test)


def test_each_way_of_changing_a_directory_changes_its_time() -> None:
    async def test(fs: MetaBench) -> None:
        times = [(await fs.mkdir("/d")).mtime_ns]
        for changes in ((create_of("/d/1"), create_of("/d/2")), (create_of("/d/3"),), (remove_of("/d/1"),)):
            fs.clock.advance(5)
            assert not any(await changed(fs, *changes))
            times.append((await fs.stat("/d")).mtime_ns)
        assert times == sorted(set(times))

    run(test)


def test_a_directory_keeps_the_time_of_the_last_change_in_it() -> None:
    async def test(fs: MetaBench) -> None:
        for name in ("/d", "/gone", "/other"):
            await fs.mkdir(name)
        other = await fs.stat("/other")
        await fs.create("/gone/f")
        fs.clock.advance(5)
        codes = await changed(
            fs,
            create_of("/d/1"),
            create_of("/d/2"),
            remove_of("/gone/f"),
            remove_of("/gone"),
            create_of("/other/new/file", exclusive=True),
            remove_of("/d/2"),
        )
        assert codes == [0, 0, 0, 0, NotFound.code, 0]
        directory, top = await fs.stat("/d"), await fs.stat("/")
        assert directory.mtime_ns == directory.ctime_ns > other.mtime_ns
        assert directory.mtime_ns >= (await fs.stat("/d/1")).birth_ns
        assert top.mtime_ns > other.mtime_ns
        assert await fs.stat("/other") == other, "nothing was changed in it"
        await fs.collect_all()

    run(test)


def test_too_much_for_one_transaction_is_divided() -> None:
    async def test(fs: MetaBench) -> None:
        changes = [create_of(f"/{number}" + "/y" * 40, parents=True) for number in range(MOST_CHANGES)]
        assert await changed(fs, *changes) == [0] * MOST_CHANGES
        made = await fs.engine.begin().get_range(*keys.REPLAYS)
        assert 1 < len(made) < 16, "a record of each transaction"

    run(test)


def test_limits() -> None:
    async def test(fs: MetaBench) -> None:
        assert await changed(fs) == []
        with pytest.raises(InvalidArgument, match=str(MOST_CHANGES)):
            await changed(fs, *[create_of("/a")] * (MOST_CHANGES + 1))
        for mutation in (pb.Mutation(request=1), pb.Mutation(client=CLIENT, request=(1 << 64) - 1)):
            with pytest.raises(InvalidArgument, match="identity"):
                await changed(fs, create_of("/a"), mutation=mutation)
        bad = pb.Change(create=pb.CreateRequest(place=at("/a"), mode=0o10000))
        assert await changed(fs, pb.Change(), bad) == [InvalidArgument.code] * 2
        single = fs.mutation()
        await create(fs.context, pb.CreateRequest(mutation=single, place=at("/a")))
        with pytest.raises(InvalidArgument, match="another method"):
            await changed(fs, create_of("/a"), mutation=single)
        assert [key for key, _ in await fs.engine.begin().get_range(*keys.REPLAYS)] == [
            keys.replay(CLIENT, single.request)
        ]

    run(test)


def test_what_may_succeed_later_is_left_out_and_the_others_are_made() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.create("/b")
        routing = fs.cluster.routing
        fs.cluster.routing = replace(routing, tables={})
        request = pb.BatchRequest(mutation=fs.mutation(), changes=[create_of("/a"), remove_of("/b")])
        assert [result.retry_alone for result in (await answered(fs, request)).results] == [True, False]
        assert await fs.names("/") == []
        fs.cluster.routing = routing
        assert await changed(fs, create_of("/a")) == [0]

    run(test)


@pytest.mark.parametrize("seed", range(3))
def test_what_is_removed_together_goes_into_the_trash_together(seed: int) -> None:
    async def test(fs: MetaBench) -> None:
        await plant(fs)
        await fs.set_trash("/a", 1000)
        changes = [
            remove_of("/a/f"),
            remove_of("/a/none"),
            create_of("/a/g"),
            remove_of("/a/g"),
            remove_of("/a/b", recursive=True),
            remove_of("/a/b/b"),
            remove_of("/closed", recursive=True),
        ]
        codes = await changed(fs, *changes)
        assert [bool(code) for code in codes] == [False, True, False, False, False, True, False]
        assert sorted(item.path for item in await fs.trash()) == [b"/a/b", b"/a/f", b"/a/g"]

    run(test, conflict_rate=0.1, unknown_rate=0.1, seed=seed)
