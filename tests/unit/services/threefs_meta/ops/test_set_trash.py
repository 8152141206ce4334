"""The setting of a directory."""

import pytest
from threefs_meta.ops.set_trash import MAX_TRASH_S

from tests.harness.meta_harness import MetaBench
from threefs.errors import InvalidArgument, NotADirectory, NotFound, PermissionDenied


async def test_it_is_seen_until_it_is_taken_away(bench: MetaBench) -> None:
    await bench.mkdir("/d")
    assert not (await bench.stat("/d")).HasField("trash_s")
    bench.clock.advance(1)
    assert (await bench.set_trash("/d", 60)).trash_s == 60
    found = await bench.stat("/d")
    assert (found.trash_s, found.ctime_ns) == (60, bench.clock.wall_ns())
    await bench.set_trash("/d", 0)
    assert (await bench.stat("/d")).HasField("trash_s")
    await bench.set_trash("/d", None)
    assert not (await bench.stat("/d")).HasField("trash_s")
    assert (await bench.stat("/.trash")).mode == 0o711


async def test_what_is_refused(bench: MetaBench) -> None:
    await bench.mkdir("/d")
    await bench.create("/f")
    for path, seconds, error in (
        ("/d", MAX_TRASH_S + 1, InvalidArgument),
        ("/f", 1, NotADirectory),
        ("/gone", 1, NotFound),
    ):
        with pytest.raises(error):
            await bench.set_trash(path, seconds)
    with bench.user(1000, 1000), pytest.raises(PermissionDenied):
        await bench.set_trash("/d", 1)
    await bench.set_trash("/d", 1)
    with pytest.raises(InvalidArgument):
        await bench.set_trash("/.trash", 1)
