"""The setting of a directory."""

import pytest
from threefs_meta.ops.set_trash import LONGEST_TRASH_S

from tests.harness.meta_harness import MetaBench, run
from threefs.errors import InvalidArgument, NotADirectory, NotFound, PermissionDenied


def test_it_is_seen_until_it_is_taken_away() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.mkdir("/d")
        assert not (await fs.stat("/d")).HasField("trash_s")
        fs.clock.advance(1)
        assert (await fs.set_trash("/d", 60)).trash_s == 60
        found = await fs.stat("/d")
        assert (found.trash_s, found.ctime_ns) == (60, fs.clock.wall_ns())
        await fs.set_trash("/d", 0)
        assert (await fs.stat("/d")).HasField("trash_s")
        await fs.set_trash("/d", None)
        assert not (await fs.stat("/d")).HasField("trash_s")
        assert (await fs.stat("/.trash")).mode == 0o711

    run(test)


def test_what_is_refused() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.mkdir("/d")
        await fs.create("/f")
        for path, seconds, error in (
            ("/d", LONGEST_TRASH_S + 1, InvalidArgument),
            ("/f", 1, NotADirectory),
            ("/gone", 1, NotFound),
        ):
            with pytest.raises(error):
                await fs.set_trash(path, seconds)
        with fs.user(1000, 1000), pytest.raises(PermissionDenied):
            await fs.set_trash("/d", 1)
        await fs.set_trash("/d", 1)
        with pytest.raises(InvalidArgument):
            await fs.set_trash("/.trash", 1)

    run(test)
