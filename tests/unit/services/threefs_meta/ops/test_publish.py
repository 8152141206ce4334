"""A precreated file gets its name, and everything else, in one step."""

import pytest
from threefs_meta.ops.link import link
from threefs_meta.ops.publish import publish
from threefs_meta.ops.truncate import truncate
from threefs_meta.store import keys

from tests.harness.many_changes import changed, create_of, publish_of
from tests.harness.meta_harness import SESSION, MetaBench, at
from threefs.errors import (
    AccessDenied,
    AlreadyExists,
    FileTooLarge,
    InvalidArgument,
    IsADirectory,
    LayoutDiffers,
    NotFound,
    PermissionDenied,
    QuotaExceeded,
    SessionLost,
)
from threefs.layout import MAX_FILE_BYTES
from threefs.wire import meta_pb2 as pb


async def filled(bench: MetaBench, path: str = "/a", data: bytes = b"content") -> pb.Inode:
    [made] = await bench.precreate(path)
    await bench.write(made, 0, data)
    return made


async def sessions(bench: MetaBench) -> int:
    return len(await bench.engine.begin().get_range(*keys.SESSIONS))


async def test_the_file_is_whole_when_its_name_is_there_and_its_session_has_ended(bench: MetaBench) -> None:
    made = await filled(bench)
    before = bench.engine.version
    reply = await bench.publish(made, "/a", length=7, mode=0o640)
    assert bench.engine.version == before + 1, "one commit for name, length, attributes and the end of the session"
    shown = await bench.stat("/a")
    assert shown == reply
    assert (shown.inode, shown.length, shown.mode, shown.nlink) == (made.inode, 7, 0o640, 1)
    assert not shown.unnamed and shown.chains_used == 1 and shown.change > made.change
    assert await sessions(bench) == 0
    await bench.collect_all()
    assert bench.chunk_numbers(made) == [0], "nothing of it is removed"


async def test_a_repeat_gets_the_first_answer(bench: MetaBench) -> None:
    made = await filled(bench)
    request = pb.PublishRequest(
        mutation=bench.mutation(), inode=made.inode, session=SESSION, place=at("/a"), mode=0o644, length=7
    )
    first = await publish(bench.context, request)
    await bench.rename("/a", "/b")
    assert await publish(bench.context, request) == first
    assert await bench.names("/") == ["b"]


async def test_a_name_that_is_taken_stays_as_it_is(bench: MetaBench) -> None:
    await bench.create("/a")
    await bench.symlink("/nowhere", "/link")
    before = await bench.stat("/a")
    made = await filled(bench)
    for path in ("/a", "/link"):
        with pytest.raises(AlreadyExists):
            await bench.publish(made, path, length=7)
    assert await bench.stat("/a") == before and await bench.names("/") == ["a", "link"]
    await bench.publish(made, "/b", length=7)  # a refusal has changed nothing


async def test_a_name_can_be_taken_from_another_file(bench: MetaBench) -> None:
    old = await filled(bench)
    await bench.publish(old, "/a", length=7)
    new = await filled(bench, data=b"newer")
    await bench.publish(new, "/a", length=5, replace=True)
    assert ((await bench.stat("/a")).inode, (await bench.stat("/a")).length) == (new.inode, 5)
    await bench.collect_all()
    assert (bench.chunk_numbers(old), bench.chunk_numbers(new)) == ([], [0])
    await bench.mkdir("/d")
    with pytest.raises(IsADirectory):
        await bench.publish(await filled(bench), "/d", length=7, replace=True)


async def test_a_file_with_another_name_is_only_unlinked(bench: MetaBench) -> None:
    await bench.create("/a")
    await bench.link("/a", "/b")
    await bench.publish(await filled(bench), "/a", length=7, replace=True)
    assert (await bench.stat("/b")).nlink == 1


async def test_without_its_session_under_the_present_lease_nothing_is_published(bench: MetaBench) -> None:
    ended, other, silent = await bench.precreate("/a", 3)
    await bench.close(ended, SESSION)
    with pytest.raises(SessionLost):
        await bench.publish(ended, "/a")
    stranger = pb.PublishRequest(
        mutation=pb.Mutation(client=b"x" * 16, request=1), inode=other.inode, session=SESSION, place=at("/a")
    )
    with pytest.raises(SessionLost):
        await publish(bench.context, stranger)
    with pytest.raises(SessionLost):
        await bench.publish(other, "/a", session=b"z" * 16)
    await bench.pass_lease()
    await bench.lease_reaper._end_silent()  # what it held is not released yet
    with pytest.raises(SessionLost):
        await bench.publish(silent, "/a")
    await bench.create("/b", session=b"n" * 16)  # the client has another lease now
    with pytest.raises(SessionLost):
        await bench.publish(silent, "/a")
    assert await bench.names("/") == ["b"]


async def test_only_what_was_just_precreated_is_published(bench: MetaBench) -> None:
    named, longer, opened = await bench.precreate("/a", 3)
    request = pb.LinkRequest(mutation=bench.mutation(), source=at("", named.inode), destination=at("/named"))
    await link(bench.context, request)
    file = (await bench.create("/file", session=b"o" * 16)).inode
    cut = pb.TruncateRequest(mutation=bench.mutation(), place=at("", longer.inode), length=100, session=SESSION)
    await truncate(bench.context, cut)
    for inode, session in ((named, SESSION), (longer, SESSION), (file, b"o" * 16)):
        with pytest.raises(InvalidArgument, match="just precreated"):
            await bench.publish(inode, "/b", session=session)
    await bench.publish(opened, "/b")


async def test_the_layout_has_to_be_that_of_the_directory(bench: MetaBench) -> None:
    await bench.mkdir("/d", layout=pb.Layout(chunk_bytes=1 << 17))
    made = await filled(bench)
    with pytest.raises(LayoutDiffers):
        await bench.publish(made, "/d/a", length=7)
    with pytest.raises(LayoutDiffers):
        await bench.publish(made, "/d/e/f/a", length=7, parents=True)
    assert await bench.names("/d") == []
    await bench.publish(await filled(bench, "/d/a"), "/d/a", length=7)


async def test_directories_above_it_can_be_made(bench: MetaBench) -> None:
    made = await filled(bench)
    with pytest.raises(NotFound):
        await bench.publish(made, "/x/y/a", length=7)
    await bench.publish(made, "/x/y/a", length=7, parents=True)
    assert (await bench.stat("/x/y/a")).length == 7 and (await bench.stat("/x")).mode == 0o755


async def test_a_published_file_belongs_to_the_caller_and_inherits_from_its_directory(bench: MetaBench) -> None:
    await bench.mkdir("/group", mode=0o777)
    await bench.set("/group", mode=0o2777, gid=77)
    made = await filled(bench)
    with bench.user(1000, 1000):
        shown = await bench.publish(made, "/group/a", length=7, mode=0o666, umask=0o027)
    assert (shown.uid, shown.gid, shown.mode) == (1000, 77, 0o640)


async def test_permissions_are_those_of_a_new_file(bench: MetaBench) -> None:
    await bench.mkdir("/closed")
    await bench.mkdir("/sticky", mode=0o1777)
    await bench.create("/sticky/roots")
    made = await filled(bench)
    with bench.user(1000, 1000):
        with pytest.raises(AccessDenied):
            await bench.publish(made, "/closed/a", length=7)
        with pytest.raises(PermissionDenied):
            await bench.publish(made, "/sticky/roots", length=7, replace=True)
        await bench.publish(made, "/sticky/mine", length=7)


async def test_a_name_that_exists_is_reported_before_missing_permissions(bench: MetaBench) -> None:
    """Its file may be written in place then. To replace it, the user must be able to write the directory."""
    await bench.create("/theirs", mode=0o666)
    await bench.mkdir("/d")
    made = await filled(bench)
    with bench.user(1000, 1000):
        for path in ("/theirs", "/d", "/"):
            with pytest.raises(AlreadyExists):
                await bench.publish(made, path, length=7)
        for replace in (False, True):
            with pytest.raises(NotFound):
                await bench.publish(made, "/none/a", length=7, replace=replace)
        for path in ("/theirs", "/d"):
            with pytest.raises(AccessDenied):
                await bench.publish(made, path, length=7, replace=True)
        with pytest.raises(AccessDenied):
            await bench.publish(made, "/none/a", length=7, parents=True)


async def test_a_quota_counts_it_with_its_length(bench: MetaBench) -> None:
    await bench.mkdir("/limited")
    await bench.set_quota("/limited", limit_bytes=10, limit_inodes=3)
    await bench.count_all()
    first, second = await filled(bench), await filled(bench)
    with pytest.raises(QuotaExceeded):
        await bench.publish(first, "/limited/a", length=11)
    await bench.publish(first, "/limited/a", length=7)
    await bench.count_all()
    quota = await bench.quota("/limited")
    assert quota is not None and quota.used_bytes == 7
    with pytest.raises(QuotaExceeded):
        await bench.publish(second, "/limited/b", length=7)
    await bench.create("/limited/c")
    await bench.count_all()
    with pytest.raises(QuotaExceeded):
        await bench.publish(second, "/limited/b")
    await bench.publish(second, "/b", length=7)


async def test_a_file_that_is_replaced_makes_room_in_a_full_quota(bench: MetaBench) -> None:
    await bench.mkdir("/limited")
    await bench.set_quota("/limited", limit_bytes=10, limit_inodes=2)
    await bench.count_all()

    async def publish(length: int) -> None:
        await bench.publish(await filled(bench), "/limited/a", length=length, replace=True)
        await bench.count_all()

    await publish(7)
    await publish(10)
    with pytest.raises(QuotaExceeded):
        await publish(11)
    await bench.link("/limited/a", "/other")
    with pytest.raises(QuotaExceeded):  # the old file stays, and still counts
        await publish(1)
    await bench.remove("/other")
    await publish(10)
    quota = await bench.quota("/limited")
    assert quota is not None and (quota.used_bytes, quota.used_inodes) == (10, 2)


async def test_a_length_that_no_file_can_have_is_refused(bench: MetaBench) -> None:
    with pytest.raises(FileTooLarge):
        await bench.publish(await filled(bench), "/a", length=MAX_FILE_BYTES + 1)
    with pytest.raises(InvalidArgument):
        await bench.publish(await filled(bench), "/", length=7, replace=True)


async def test_many_share_a_commit_and_each_succeeds_or_fails_by_itself(bench: MetaBench) -> None:
    made = await bench.precreate("/a", 6)
    await bench.create("/taken")
    before = bench.engine.version
    names = ["/a", "/taken", "/none/x", "/b", "/c", "/d"]
    codes = await changed(bench, *map(publish_of, made, names, range(6)))
    assert codes == [0, AlreadyExists.code, NotFound.code, 0, 0, 0]
    assert bench.engine.version == before + 1
    assert [(await bench.stat(name)).length for name in ("/a", "/b", "/c", "/d")] == [0, 3, 4, 5]
    assert await sessions(bench) == 2, "those of the two that failed"


async def test_in_a_batch_with_other_changes_each_sees_those_before(bench: MetaBench) -> None:
    first, second = await bench.precreate("/a", 2)
    codes = await changed(bench, create_of("/a"), publish_of(first, "/a"), publish_of(second, "/b"), create_of("/b"))
    assert codes == [0, AlreadyExists.code, 0, 0]


async def test_the_collector_and_a_publication_never_both_have_it(bench: MetaBench) -> None:
    """The client closes the session because it believes that its publication has failed, which comes later."""
    made = await filled(bench)
    await bench.close(made, SESSION)
    with pytest.raises(SessionLost):
        await bench.publish(made, "/a", length=7)
    await bench.collect_all()
    assert await bench.names("/") == [] and bench.chunk_numbers(made) == []
