import pytest
from threefs_meta.resolve.directory_path import path_of, shown

from tests.harness.meta_harness import MetaBench, run
from threefs.errors import AccessDenied


def test_the_path_of_a_directory_follows_its_renames() -> None:
    async def test(fs: MetaBench) -> None:
        assert await path_of(fs.context.engine.begin(), 1) == b"/"
        await fs.mkdir("/a")
        below = await fs.mkdir("/a/b")
        assert await path_of(fs.context.engine.begin(), below.inode) == b"/a/b"
        await fs.rename("/a", "/c")
        assert await path_of(fs.context.engine.begin(), below.inode) == b"/c/b"
        await fs.remove("/c/b")
        assert await path_of(fs.context.engine.begin(), below.inode) == b""
        assert await path_of(fs.context.engine.begin(), 1 << 40) == b""

    run(test)


def test_errors_name_the_directory_that_may_not_be_changed() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.mkdir("/a")
        below = await fs.mkdir("/a/b")
        with fs.user(5, 5):
            with pytest.raises(AccessDenied, match=r"^the directory /a/b: user 5 has no permission to write$"):
                await fs.mkdir("/a/b/c")
            with pytest.raises(AccessDenied, match=r"^the directory /a/b: "):
                await fs.create("/a/b/f")
            with pytest.raises(AccessDenied, match=r"^the directory /a: "):
                await fs.remove("/a/b")
        await fs.remove("/a/b")
        assert await shown(fs.context.engine.begin(), below.inode) == f"inode {below.inode}"

    run(test)
