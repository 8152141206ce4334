"""Adding, removing and moving entries."""

import pytest

from tests.harness.meta_harness import MetaBench
from threefs.errors import AccessDenied, PermissionDenied


async def test_errors_name_the_directory_that_may_not_be_changed(bench: MetaBench) -> None:
    await bench.mkdir("/a")
    await bench.mkdir("/a/b")
    with bench.user(5, 5):
        with pytest.raises(AccessDenied, match=r"^the directory /a/b: user 5 has no permission to write$"):
            await bench.mkdir("/a/b/c")
        with pytest.raises(AccessDenied, match=r"^the directory /a/b: "):
            await bench.create("/a/b/f")
        with pytest.raises(AccessDenied, match=r"^the directory /a: "):
            await bench.remove("/a/b")


async def test_a_directory_that_moves_elsewhere_is_itself_written(bench: MetaBench) -> None:
    for path in ("/a", "/b", "/a/theirs"):
        await bench.mkdir(path)
    for path in ("/a", "/b"):
        await bench.set(path, uid=5, gid=5)
    with bench.user(5, 5):
        await bench.rename("/a/theirs", "/a/other")
        with pytest.raises(AccessDenied, match=r"^/a/other: user 5 has no permission to write$"):
            await bench.rename("/a/other", "/b/other")


async def test_a_sticky_directory_protects_what_belongs_to_others(bench: MetaBench) -> None:
    await bench.mkdir("/tmp", mode=0o1777)
    await bench.create("/tmp/a")
    with bench.user(5, 5):
        with pytest.raises(PermissionDenied):
            await bench.rename("/tmp/a", "/tmp/b")
        with pytest.raises(PermissionDenied):
            await bench.remove("/tmp/a")
        await bench.create("/tmp/mine")
        await bench.rename("/tmp/mine", "/tmp/still-mine")
