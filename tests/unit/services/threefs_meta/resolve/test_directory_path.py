import pytest
from threefs_meta.resolve.directory_path import path_of, shown

from tests.harness.meta_harness import MetaBench
from threefs.errors import AccessDenied


async def test_the_path_of_a_directory_follows_its_renames(bench: MetaBench) -> None:
    assert await path_of(bench.context.engine.begin(), 1) == b"/"
    await bench.mkdir("/a")
    below = await bench.mkdir("/a/b")
    assert await path_of(bench.context.engine.begin(), below.inode) == b"/a/b"
    await bench.rename("/a", "/c")
    assert await path_of(bench.context.engine.begin(), below.inode) == b"/c/b"
    await bench.remove("/c/b")
    assert await path_of(bench.context.engine.begin(), below.inode) == b""
    assert await path_of(bench.context.engine.begin(), 1 << 40) == b""


async def test_errors_name_the_directory_that_may_not_be_changed(bench: MetaBench) -> None:
    await bench.mkdir("/a")
    below = await bench.mkdir("/a/b")
    with bench.user(5, 5):
        with pytest.raises(AccessDenied, match=r"^the directory /a/b: user 5 has no permission to write$"):
            await bench.mkdir("/a/b/c")
        with pytest.raises(AccessDenied, match=r"^the directory /a/b: "):
            await bench.create("/a/b/f")
        with pytest.raises(AccessDenied, match=r"^the directory /a: "):
            await bench.remove("/a/b")
    await bench.remove("/a/b")
    assert await shown(bench.context.engine.begin(), below.inode) == f"inode {below.inode}"
