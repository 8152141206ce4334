"""Hard links."""

import asyncio

import pytest
from threefs_meta.ops.link import MAX_LINKS, link
from threefs_meta.store import keys
from threefs_meta.store.namespace import Namespace

from tests.harness.meta_harness import CLIENT, SESSION, MetaBench, at
from threefs.errors import (
    AccessDenied,
    AlreadyExists,
    InvalidArgument,
    NotADirectory,
    NotFound,
    PermissionDenied,
    QuotaExceeded,
    TooManyLinks,
)
from threefs.wire import meta_pb2 as pb


async def test_two_names_of_one_file(bench: MetaBench) -> None:
    made = (await bench.create("/a")).inode
    linked = await bench.link("/a", "/b")
    assert (linked.inode, linked.nlink) == (made.inode, 2)
    assert await bench.stat("/a") == await bench.stat("/b") == linked


async def test_invalid_requests_are_refused(bench: MetaBench) -> None:
    await bench.create("/a")
    await bench.mkdir("/d")
    await bench.symlink("a", "/l")
    for source, target, error in (
        ("/d", "/x", PermissionDenied),
        ("/gone", "/x", NotFound),
        ("/a", "/d", AlreadyExists),
        ("/a", "/gone/x", NotFound),
    ):
        with pytest.raises(error):
            await bench.link(source, target)


async def test_a_symbolic_link_has_names_too(bench: MetaBench) -> None:
    await bench.symlink("a", "/l")
    assert (await bench.link("/l", "/m")).nlink == 2
    await bench.remove("/l")
    assert (await bench.stat("/m", follow=False)).target == b"a"
    await bench.remove("/m")


async def test_at_most_so_many() -> None:
    fs = await MetaBench().start()
    made = (await fs.create("/a")).inode
    made.nlink = MAX_LINKS
    tx = fs.engine.begin()
    Namespace(tx).put_inode(made)
    await tx.commit()
    with pytest.raises(TooManyLinks):
        await fs.link("/a", "/b")


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.trouble(conflict_rate=0.1, unknown_rate=0.1)
async def test_links_and_removals_at_once_count_right(bench: MetaBench, seed: int) -> None:
    await bench.create("/a")
    await asyncio.gather(*(bench.link("/a", f"/{n}") for n in range(10)))
    await asyncio.gather(
        bench.remove("/a"),
        *(bench.remove(f"/{n}") for n in range(5)),
        *(bench.link(f"/{n}", f"/x{n}") for n in range(5, 10)),
    )
    assert (await bench.stat("/5")).nlink == 10


async def name(fs: MetaBench, inode: int, path: str) -> pb.Inode:
    request = pb.LinkRequest(caller=fs.caller, mutation=fs.mutation(), source=at("", inode), destination=at(path))
    first = (await link(fs.context, request)).inode
    assert (await link(fs.context, request)).inode == first, "sent again, the answer is the same"
    return first


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.trouble(conflict_rate=0.1, unknown_rate=0.1)
async def test_a_file_without_a_name_gets_one_and_is_as_any_other_from_then_on(bench: MetaBench, seed: int) -> None:
    await bench.mkdir("/d")
    made = (await bench.create("/d", session=SESSION, unnamed=True)).inode
    assert made.nlink == 0 and await bench.names("/d") == []
    await bench.write(made, 0, b"abc")
    await bench.pass_lease()
    await bench.renew(CLIENT)
    await bench.collect_all()
    assert bench.chunk_numbers(made) == [0], "its session keeps it"
    assert (await name(bench, made.inode, "/d/a")).nlink == 1
    await bench.close(made, SESSION, length_hint=3, written=True)
    await bench.collect_all()
    assert (await bench.stat("/d/a")).length == 3 and bench.chunk_numbers(made) == [0]
    assert not (await bench.stat("/d/a")).unnamed
    await bench.remove("/d/a")
    await bench.collect_all()
    assert bench.chunk_numbers(made) == []


@pytest.mark.parametrize("dies", [False, True])
async def test_a_file_that_got_no_name_is_freed(bench: MetaBench, dies: bool) -> None:
    made = (await bench.create("/", session=SESSION, unnamed=True)).inode
    await bench.write(made, 0, b"abc")
    if dies:
        await bench.pass_lease()
        await bench.lease_reaper.reap()
    else:
        await bench.close(made, SESSION, length_hint=3, written=True)
    with pytest.raises(NotFound):
        await name(bench, made.inode, "/a")
    await bench.collect_all()
    assert bench.chunk_numbers(made) == []
    assert await bench.engine.begin().get(keys.inode(made.inode)) is None


async def test_only_files_that_never_had_a_name_can_get_a_first_one(bench: MetaBench) -> None:
    made = (await bench.create("/a", session=SESSION)).inode
    await bench.remove("/a")
    with pytest.raises(NotFound):
        await name(bench, made.inode, "/b")


async def test_a_file_without_a_name_needs_the_permission_to_make_a_named_one(bench: MetaBench) -> None:
    await bench.mkdir("/d", mode=0o755)
    await bench.create("/f")
    for path, session, error in (
        ("/d", b"", InvalidArgument),
        ("/f", SESSION, NotADirectory),
        ("/gone", SESSION, NotFound),
    ):
        with pytest.raises(error):
            await bench.create(path, session=session, unnamed=True)
    with bench.user(1000, 1000), pytest.raises(AccessDenied):
        await bench.create("/d", session=SESSION, unnamed=True)


async def test_quotas_count_a_file_from_its_first_name_on(bench: MetaBench) -> None:
    await bench.mkdir("/q")
    await bench.set_quota("/q", limit_bytes=100, limit_inodes=3)
    made = (await bench.create("/q", session=SESSION, unnamed=True)).inode
    await bench.close(made, b"", length_hint=90, written=True)
    await bench.count_all()
    usage = await bench.quota("/q")
    assert usage is not None and usage.used_inodes == 1
    await name(bench, made.inode, "/q/a")
    await bench.count_all()
    usage = await bench.quota("/q")
    assert usage is not None and (usage.used_inodes, usage.used_bytes) == (2, 90)
    other = (await bench.create("/", session=b"o" * 16, unnamed=True)).inode
    await bench.close(other, b"", length_hint=90, written=True)
    with pytest.raises(QuotaExceeded):
        await name(bench, other.inode, "/q/b")
    await bench.close(other, b"o" * 16)
    await bench.close(made, SESSION)
