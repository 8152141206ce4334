from threefs_meta.directory_path import path_of

from tests.support.metadata import MetaBench, run


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
