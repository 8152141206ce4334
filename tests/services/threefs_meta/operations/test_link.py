"""Hard links."""

import asyncio

import pytest
from threefs_meta.namespace import Namespace
from threefs_meta.operations.link import MOST_LINKS

from tests.support.metadata import MetaBench, run
from threefs.errors import AlreadyExists, NotFound, PermissionDenied, TooManyLinks


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
