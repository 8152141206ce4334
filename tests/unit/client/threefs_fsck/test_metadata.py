"""Every kind of damage is found and mended, and what only changes meanwhile is not taken for damage."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from threefs_fsck import metadata
from threefs_meta.ops.quota import set_quota
from threefs_meta.quota.accounting import user_account
from threefs_meta.quota.aggregator import UsageAggregator
from threefs_meta.store import keys

from tests.harness import damage
from tests.harness.fsck import LocalMeta, check_metadata
from tests.harness.meta_harness import SESSION, MetaBench
from threefs.ids import ROOT
from threefs.kv import records
from threefs.wire import meta_pb2 as pb
from threefs.wire.records_pb2 import ClientLocks, DirectoryTimes, ReadHold, Removal, Usage, WriteSession, XattrRecord

Damage = Callable[[MetaBench], Awaitable[list[str]]]


async def dangling(bench: MetaBench) -> list[str]:
    await damage.put_entry(bench, ROOT, b"nothing", 99, pb.FILE)
    return ["dangling_entry"]


async def lost_inode(bench: MetaBench) -> list[str]:
    await damage.drop_inode(bench, (await bench.stat("/d/f")).inode)
    return ["dangling_entry"]


async def orphan_file(bench: MetaBench) -> list[str]:
    await damage.drop_entry(bench, (await bench.stat("/d")).inode, b"f")
    return ["orphan"]


async def orphan_directory(bench: MetaBench) -> list[str]:
    await damage.drop_entry(bench, ROOT, b"d")
    return ["orphan"]


async def lost_directory(bench: MetaBench) -> list[str]:
    await damage.drop_inode(bench, (await bench.stat("/d")).inode)
    return ["dangling_entry", "lost_entry", "lost_entry", "lost_entry", "attached_to_nothing", "attached_to_nothing"]


async def entry_in_a_file(bench: MetaBench) -> list[str]:
    made = await bench.create("/inside")
    await damage.drop_entry(bench, ROOT, b"inside")
    await damage.put_entry(bench, (await bench.stat("/d/f")).inode, b"inside", made.inode.inode, pb.FILE)
    return ["lost_entry"]


async def too_many_links(bench: MetaBench) -> list[str]:
    inode = await bench.stat("/two")
    inode.nlink = 7
    await damage.put_inode(bench, inode)
    return ["wrong_links"]


async def too_few_links(bench: MetaBench) -> list[str]:
    inode = await bench.stat("/two")
    inode.nlink = 1
    await damage.put_inode(bench, inode)
    return ["wrong_links"]


async def no_links_and_queued(bench: MetaBench) -> list[str]:
    inode = await bench.stat("/two")
    inode.nlink = 0
    await damage.put_inode(bench, inode)
    await damage.put(bench, keys.removal(3, inode.inode), records.encode(Removal(type=pb.FILE)))
    return ["wrong_links"]


async def directory_without_links_that_is_queued(bench: MetaBench) -> list[str]:
    inode = await bench.stat("/d")
    inode.nlink = 0
    await damage.put_inode(bench, inode)
    await damage.put_count(bench, ROOT, inode.inode, False)
    await damage.put(bench, keys.removal(3, inode.inode), records.encode(Removal(type=pb.DIRECTORY)))
    return ["wrong_links"]


async def named_and_queued(bench: MetaBench) -> list[str]:
    inode = await bench.stat("/two")
    await damage.put(bench, keys.removal(3, inode.inode), records.encode(Removal(type=pb.FILE)))
    return ["queued_named"]


async def queued_nothing(bench: MetaBench) -> list[str]:
    await damage.put(bench, keys.removal(3, 99), records.encode(Removal(type=pb.FILE)))
    return ["queued_nothing"]


async def not_queued(bench: MetaBench) -> list[str]:
    inode = (await bench.stat("/d/f")).inode
    await bench.remove("/d/f")
    (key,) = [key for key in await all_keys(bench) if key.startswith(keys.REMOVALS[0])]
    assert keys.removed_inode(key) == inode
    await damage.put(bench, key, None)
    return ["not_queued"]


async def wrong_type(bench: MetaBench) -> list[str]:
    await damage.put_entry(bench, ROOT, b"two", (await bench.stat("/two")).inode, pb.SYMLINK)
    return ["wrong_type"]


async def wrong_parent(bench: MetaBench) -> list[str]:
    inode = await bench.stat("/d/below")
    inode.parent = ROOT
    await damage.put_inode(bench, inode)
    return ["wrong_parent"]


async def directory_with_two_names(bench: MetaBench) -> list[str]:
    await damage.put_entry(bench, ROOT, b"again", (await bench.stat("/d/below")).inode, pb.DIRECTORY)
    return ["extra_name"]


async def loop(bench: MetaBench) -> list[str]:
    """/d is moved into /d/below by force."""
    outer, inner = await bench.stat("/d"), await bench.stat("/d/below")
    await damage.drop_entry(bench, ROOT, b"d")
    await damage.put_entry(bench, inner.inode, b"d", outer.inode, pb.DIRECTORY)
    outer.parent = inner.inode
    await damage.put_inode(bench, outer)
    await damage.put_count(bench, ROOT, outer.inode, False)
    await damage.put_count(bench, inner.inode, outer.inode, True)
    return ["loop"]


async def not_counted(bench: MetaBench) -> list[str]:
    outer, inner = await bench.stat("/d"), await bench.stat("/d/below")
    await damage.put_count(bench, outer.inode, inner.inode, False)
    return ["not_counted"]


async def counted_and_not_there(bench: MetaBench) -> list[str]:
    for directory in (98, (await bench.stat("/two")).inode, (await bench.stat("/d/below")).inode):
        await damage.put_count(bench, ROOT, directory, True)
    return ["attached_to_nothing"] * 3


async def session_of_nothing(bench: MetaBench) -> list[str]:
    await damage.put(bench, keys.session(99, SESSION), records.encode(WriteSession(client=b"c" * 16)))
    return ["attached_to_nothing"]


async def session_of_nobody(bench: MetaBench) -> list[str]:
    inode = (await bench.stat("/two")).inode
    record = WriteSession(client=b"c" * 16, lease=77)
    await damage.put(bench, keys.session(inode, SESSION), records.encode(record))
    return ["held_by_nobody"]


async def hold_of_nobody(bench: MetaBench) -> list[str]:
    inode = (await bench.stat("/two")).inode
    await damage.put(bench, keys.hold(inode, b"c" * 16), records.encode(ReadHold(lease=77)))
    return ["held_by_nobody"]


async def times_of_a_file(bench: MetaBench) -> list[str]:
    inode = (await bench.stat("/two")).inode
    await damage.put(bench, keys.times(inode), records.encode(DirectoryTimes(mtime_ns=1)))
    return ["attached_to_nothing"]


async def free_number(bench: MetaBench) -> list[str]:
    await damage.put(bench, keys.NEXT_INODE, None)
    return ["free_number"] * 4


async def with_quotas(bench: MetaBench) -> dict[bytes, Usage]:
    """Sums of the tree /d and of the user who owns all."""
    await set_quota(bench.context, pb.SetQuotaRequest(mutation=bench.mutation(), place=pb.Place(path=b"/d")))
    await set_quota(bench.context, pb.SetQuotaRequest(mutation=bench.mutation(), uid=0))
    while await UsageAggregator(bench.context).run_once():
        pass
    pairs = await bench.engine.begin().get_range(*keys.USAGE)
    assert len(pairs) == 2
    return {key: records.decode(value, Usage, key) for key, value in pairs}


async def wrong_usage(bench: MetaBench) -> list[str]:
    for key, usage in (await with_quotas(bench)).items():
        usage.bytes += 5
        usage.inodes -= 1
        await damage.put(bench, key, records.encode(usage))
    return ["wrong_usage"] * 2


async def lost_usage(bench: MetaBench) -> list[str]:
    for key in await with_quotas(bench):
        await damage.put(bench, key, None)
    return ["wrong_usage"] * 2


async def usage_of_nothing(bench: MetaBench) -> list[str]:
    await with_quotas(bench)
    await damage.put(bench, keys.usage(user_account(77)), records.encode(Usage(bytes=1)))
    return ["wrong_usage"]


async def xattr_of_nothing(bench: MetaBench) -> list[str]:
    for name in (b"user.a", b"system.posix_acl_access"):
        await damage.put(bench, keys.xattr(99, name), records.encode(XattrRecord(value=b"x")))
    return ["attached_to_nothing"] * 2


async def lock_of_nobody(bench: MetaBench) -> list[str]:
    inode = (await bench.stat("/two")).inode
    await damage.put(bench, keys.lock(inode, b"c" * 16), records.encode(ClientLocks(lease=77)))
    return ["held_by_nobody"]


DAMAGES = (
    wrong_usage,
    lost_usage,
    usage_of_nothing,
    xattr_of_nothing,
    lock_of_nobody,
    dangling,
    lost_inode,
    orphan_file,
    orphan_directory,
    lost_directory,
    entry_in_a_file,
    too_many_links,
    too_few_links,
    no_links_and_queued,
    directory_without_links_that_is_queued,
    named_and_queued,
    queued_nothing,
    not_queued,
    wrong_type,
    wrong_parent,
    directory_with_two_names,
    loop,
    not_counted,
    counted_and_not_there,
    session_of_nothing,
    session_of_nobody,
    hold_of_nobody,
    times_of_a_file,
    free_number,
)


async def all_keys(bench: MetaBench) -> list[bytes]:
    return [key for key, _ in await bench.engine.begin().get_range(b"", b"\xff")]


async def tree(bench: MetaBench) -> None:
    """/d/f, /d/below/deep, and /two, which is /d/two as well."""
    await bench.mkdir("/d/below", parents=True)
    await bench.create("/d/f")
    await bench.create("/two")
    await bench.link("/two", "/d/two")


@pytest.mark.parametrize("hurt", DAMAGES, ids=lambda hurt: hurt.__name__)
async def test_damage_is_found_and_repaired(bench: MetaBench, hurt: Damage) -> None:
    await tree(bench)
    meta = LocalMeta(bench.context)
    wanted = sorted(await hurt(bench))
    before = await bench.engine.begin().get_range(b"", b"\xff")
    found = await check_metadata(meta)
    assert sorted(finding.kind for finding in found.findings) == wanted
    assert found.exit_code == 4
    assert await bench.engine.begin().get_range(b"", b"\xff") == before, "a check changes nothing"
    for _ in range(4):
        mended = await check_metadata(meta, repair=True)
        if not mended.findings:
            break
        assert mended.exit_code == 1
    assert not mended.findings


async def test_what_was_lost_is_in_lost_and_found(bench: MetaBench) -> None:
    await tree(bench)
    file, directory = await bench.stat("/d/f"), await bench.stat("/d")
    await orphan_file(bench)
    await orphan_directory(bench)
    await check_metadata(LocalMeta(bench.context), repair=True)
    assert await bench.names("/lost+found") == sorted([f"#{file.inode}", f"#{directory.inode}"])
    assert await bench.names(f"/lost+found/#{directory.inode}") == ["below", "two"]
    assert (await bench.stat(f"/lost+found/#{file.inode}")).nlink == 1
    assert await bench.names("/") == ["lost+found", "two"]


async def test_a_file_of_which_all_names_were_in_a_lost_directory_keeps_its_count(bench: MetaBench) -> None:
    await bench.mkdir("/gone")
    made = await bench.create("/gone/a")
    await bench.link("/gone/a", "/gone/b")
    await lost(bench, "/gone")
    meta = LocalMeta(bench.context)
    await check_metadata(meta, repair=True)
    assert (await check_metadata(meta)).exit_code == 0
    number = made.inode.inode
    assert await bench.names("/lost+found") == [f"#{number}", f"#{number}.1"]
    assert (await bench.stat(f"/lost+found/#{number}")).nlink == 2


async def lost(bench: MetaBench, path: str) -> None:
    await damage.drop_inode(bench, (await bench.stat(path)).inode)


async def test_a_root_that_is_missing_is_made_again(bench: MetaBench) -> None:
    await tree(bench)
    await damage.drop_inode(bench, ROOT)
    meta = LocalMeta(bench.context)
    found = await check_metadata(meta)
    assert "root_missing" in {finding.kind for finding in found.findings}
    for _ in range(4):
        await check_metadata(meta, repair=True)
    assert (await check_metadata(meta)).exit_code == 0
    await bench.stat("/")


async def test_a_record_that_cannot_be_read_is_reported_and_left_alone(bench: MetaBench) -> None:
    await tree(bench)
    for key in (keys.inode((await bench.stat("/two")).inode), keys.entry(ROOT, b"d")):
        await damage.flip(bench, key)
        meta = LocalMeta(bench.context)
        before = await damage.get(bench, key)
        found = await check_metadata(meta, repair=True)
        assert "unreadable_record" in {finding.kind for finding in found.findings}
        assert found.exit_code == 4
        assert await damage.get(bench, key) == before
        await damage.flip(bench, key)
        for _ in range(3):
            await check_metadata(meta, repair=True)


async def test_a_busy_name_space_is_clean(bench: MetaBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names move, come and go between any two pages."""
    monkeypatch.setattr(metadata, "PAGE_ROWS", 3)
    meta = LocalMeta(bench.context)
    for number in range(12):
        await bench.mkdir(f"/d{number:02}")
        await bench.create(f"/d{number:02}/f")
    turn = 0

    async def disturb(request: Any) -> None:
        nonlocal turn
        turn += 1
        low, high = f"/d{turn % 6:02}", f"/d{6 + turn % 6:02}"
        await bench.create(f"{low}/new{turn}")
        await bench.link(f"{low}/new{turn}", f"{high}/new{turn}")
        await bench.remove(f"{low}/new{turn}")
        await bench.rename(f"{high}/new{turn}", f"/moved{turn}")
        await bench.mkdir(f"{high}/deep{turn}")
        await bench.rename(f"{high}/deep{turn}", f"{low}/deep{turn}")
        if turn % 3 == 0:
            await bench.remove(f"/moved{turn}")
            await bench.remove(f"{low}/deep{turn}", recursive=True)
        if turn > 150:
            meta.before = None

    meta.before = disturb
    for _ in range(3):
        found = await check_metadata(meta, repair=True)
        assert [finding.detail for finding in found.findings] == []
    assert turn > 150


async def test_a_file_that_moves_all_the_time_is_no_orphan(bench: MetaBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "PAGE_ROWS", 2)
    meta = LocalMeta(bench.context)
    for name in "abcdefgh":
        await bench.create(f"/{name}")
    await bench.create("/z0", session=SESSION)
    place = "/z0"

    async def move(request: pb.FsckScanRequest) -> None:
        """Behind the scan whenever it comes near."""
        nonlocal place
        if not isinstance(request, pb.FsckScanRequest) or request.table != pb.FSCK_ENTRIES:
            return
        there = "/0" if request.after else "/z0"
        if there != place:
            bench.clock.advance(0.001)
            await bench.rename(place, there)
            place = there

    meta.before = move
    found = await check_metadata(meta, repair=True)
    assert not found.findings


async def test_a_file_without_a_name_that_is_closed_during_the_check_is_right(bench: MetaBench) -> None:
    """It comes into the queue when that has been looked through."""
    made = (await bench.create("/", session=SESSION, unnamed=True)).inode
    meta = LocalMeta(bench.context)
    open_still = True

    async def close(request: object) -> None:
        nonlocal open_still
        if open_still and isinstance(request, pb.FsckRecheckRequest):
            open_still = False
            bench.clock.advance(0.001)
            await bench.close(made, SESSION)

    meta.before = close
    assert not (await check_metadata(meta)).findings and not open_still


async def test_more_suspects_than_one_run_takes(bench: MetaBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "MAX_SUSPECTS", 2)
    monkeypatch.setattr(metadata, "SUBJECTS_PER_REQUEST", 1)
    for name in ("a", "b", "c", "d", "e"):
        await bench.create(f"/{name}")
        await damage.drop_entry(bench, ROOT, name.encode())
    meta = LocalMeta(bench.context)
    first = await check_metadata(meta, repair=True)
    assert (len(first.findings), first.complete, first.exit_code) == (2, False, 4)
    while not first.complete:
        first = await check_metadata(meta, repair=True)
    assert (await check_metadata(meta)).exit_code == 0


def test_subjects_with_many_names_go_in_small_requests() -> None:
    many = {(1, b"%d" % number): None for number in range(metadata.NAMES_PER_REQUEST)}
    few = {(1, b"x"): None}
    parts = list(metadata._batches([(2, many), (3, few), (4, few)]))
    assert [[inode for inode, _ in part] for part in parts] == [[2], [3, 4]]


async def test_repairs_survive_lost_answers() -> None:
    """A repair of which the outcome was unknown is done once, and is told as done."""
    bench = await MetaBench(conflict_rate=0.2, unknown_rate=0.3, seed=3).start()
    await tree(bench)
    await orphan_file(bench)
    await dangling(bench)
    found = await check_metadata(LocalMeta(bench.context), repair=True)
    assert {finding.kind for finding in found.findings if finding.repaired} == {"orphan", "dangling_entry"}
    await bench.audit()


async def test_a_sum_that_changes_during_the_count_is_not_taken_for_wrong(bench: MetaBench) -> None:
    await tree(bench)
    await with_quotas(bench)
    meta = LocalMeta(bench.context)

    async def change(request: Any) -> None:
        """Between the sums and the count of each round."""
        if isinstance(request, pb.FsckScanRequest) and request.table == pb.FSCK_INODES:
            await bench.create(f"/d/new-{len(await bench.names('/d'))}")

    meta.before = change
    found = await check_metadata(meta)
    assert not found.findings and found.complete
