"""Hard links."""

import asyncio

import pytest
from threefs_meta.ops.link import MOST_LINKS, link
from threefs_meta.store import keys
from threefs_meta.store.namespace import Namespace

from tests.harness.meta_harness import CLIENT, SESSION, MetaBench, at, run
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


def test_two_names_of_one_file() -> None:
    async def test(fs: MetaBench) -> None:
        made = (await fs.create("/a")).inode
        linked = await fs.link("/a", "/b")
        assert (linked.inode, linked.nlink) == (made.inode, 2)
        assert await fs.stat("/a") == await fs.stat("/b") == linked

    run(test)


def test_what_is_refused() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.create("/a")
        await fs.mkdir("/d")
        await fs.symlink("a", "/l")
        for source, target, error in (
            ("/d", "/x", PermissionDenied),
            ("/gone", "/x", NotFound),
            ("/a", "/d", AlreadyExists),
            ("/a", "/gone/x", NotFound),
        ):
            with pytest.raises(error):
                await fs.link(source, target)

    run(test)


def test_a_symbolic_link_has_names_too() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.symlink("a", "/l")
        assert (await fs.link("/l", "/m")).nlink == 2
        await fs.remove("/l")
        assert (await fs.stat("/m", follow=False)).target == b"a"
        await fs.remove("/m")

    run(test)


def test_at_most_so_many() -> None:
    async def test() -> None:
        fs = await MetaBench().start()
        made = (await fs.create("/a")).inode
        made.nlink = MOST_LINKS
        tx = fs.engine.begin()
        Namespace(tx).put_inode(made)
        await tx.commit()
        with pytest.raises(TooManyLinks):
            await fs.link("/a", "/b")

    asyncio.run(test())


@pytest.mark.parametrize("seed", range(4))
def test_links_and_removals_at_once_count_right(seed: int) -> None:
    async def test(fs: MetaBench) -> None:
        await fs.create("/a")
        await asyncio.gather(*(fs.link("/a", f"/{n}") for n in range(10)))
        await asyncio.gather(
            fs.remove("/a"),
            *(fs.remove(f"/{n}") for n in range(5)),
            *(fs.link(f"/{n}", f"/x{n}") for n in range(5, 10)),
        )
        assert (await fs.stat("/5")).nlink == 10

    run(test, conflict_rate=0.1, unknown_rate=0.1, seed=seed)


async def name(fs: MetaBench, inode: int, path: str) -> pb.Inode:
    request = pb.LinkRequest(caller=fs.caller, mutation=fs.mutation(), source=at("", inode), destination=at(path))
    first = (await link(fs.context, request)).inode
    assert (await link(fs.context, request)).inode == first, "sent again, the answer is the same"
    return first


@pytest.mark.parametrize("seed", range(3))
def test_a_file_without_a_name_gets_one_and_is_as_any_other_from_then_on(seed: int) -> None:
    async def test(fs: MetaBench) -> None:
        await fs.mkdir("/d")
        made = (await fs.create("/d", session=SESSION, unnamed=True)).inode
        assert made.nlink == 0 and await fs.names("/d") == []
        await fs.write(made, 0, b"abc")
        await fs.pass_lease()
        await fs.renew(CLIENT)
        await fs.collect_all()
        assert fs.chunk_numbers(made) == [0], "its session keeps it"
        assert (await name(fs, made.inode, "/d/a")).nlink == 1
        await fs.close(made, SESSION, length_hint=3, written=True)
        await fs.collect_all()
        assert (await fs.stat("/d/a")).length == 3 and fs.chunk_numbers(made) == [0]
        assert not (await fs.stat("/d/a")).unnamed
        await fs.remove("/d/a")
        await fs.collect_all()
        assert fs.chunk_numbers(made) == []

    run(test, conflict_rate=0.1, unknown_rate=0.1, seed=seed)


@pytest.mark.parametrize("dies", [False, True])
def test_a_file_that_got_no_name_is_freed(dies: bool) -> None:
    async def test(fs: MetaBench) -> None:
        made = (await fs.create("/", session=SESSION, unnamed=True)).inode
        await fs.write(made, 0, b"abc")
        if dies:
            await fs.pass_lease()
            await fs.lease_reaper.reap()
        else:
            await fs.close(made, SESSION, length_hint=3, written=True)
        with pytest.raises(NotFound):
            await name(fs, made.inode, "/a")
        await fs.collect_all()
        assert fs.chunk_numbers(made) == []
        assert await fs.engine.begin().get(keys.inode(made.inode)) is None

    run(test)


def test_only_files_that_never_had_a_name_can_get_a_first_one() -> None:
    async def test(fs: MetaBench) -> None:
        made = (await fs.create("/a", session=SESSION)).inode
        await fs.remove("/a")
        with pytest.raises(NotFound):
            await name(fs, made.inode, "/b")

    run(test)


def test_a_file_without_a_name_is_made_by_who_could_make_one_with_it() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.mkdir("/d", mode=0o755)
        await fs.create("/f")
        for path, session, error in (
            ("/d", b"", InvalidArgument),
            ("/f", SESSION, NotADirectory),
            ("/gone", SESSION, NotFound),
        ):
            with pytest.raises(error):
                await fs.create(path, session=session, unnamed=True)
        with fs.user(1000, 1000), pytest.raises(AccessDenied):
            await fs.create("/d", session=SESSION, unnamed=True)

    run(test)


def test_quotas_count_a_file_from_its_first_name_on() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.mkdir("/q")
        await fs.set_quota("/q", limit_bytes=100, limit_inodes=3)
        made = (await fs.create("/q", session=SESSION, unnamed=True)).inode
        await fs.close(made, b"", length_hint=90, written=True)
        await fs.count_all()
        usage = await fs.quota("/q")
        assert usage is not None and usage.used_inodes == 1
        await name(fs, made.inode, "/q/a")
        await fs.count_all()
        usage = await fs.quota("/q")
        assert usage is not None and (usage.used_inodes, usage.used_bytes) == (2, 90)
        other = (await fs.create("/", session=b"o" * 16, unnamed=True)).inode
        await fs.close(other, b"", length_hint=90, written=True)
        with pytest.raises(QuotaExceeded):
            await name(fs, other.inode, "/q/b")
        await fs.close(other, b"o" * 16)
        await fs.close(made, SESSION)

    run(test)
