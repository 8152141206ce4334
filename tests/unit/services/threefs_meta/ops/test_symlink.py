"""Making symbolic links."""

import pytest

from tests.harness.meta_harness import MetaBench
from threefs.errors import AlreadyExists, InvalidArgument, NameTooLong, NotFound
from threefs.wire import meta_pb2 as pb


async def test_a_link_keeps_its_target_as_it_was_given(bench: MetaBench) -> None:
    for number, target in enumerate(("a", "/a//b/../c/", "ü", "t" * 4095)):
        made = await bench.symlink(target, f"/{number}")
        assert (made.type, made.target, made.length) == (pb.SYMLINK, target.encode(), len(target.encode()))


async def test_invalid_requests_are_refused(bench: MetaBench) -> None:
    await bench.create("/a")
    for target, path, error in (
        ("x", "/a", AlreadyExists),
        ("x", "/gone/l", NotFound),
        ("", "/l", NotFound),
        ("a\0b", "/l", InvalidArgument),
        ("t" * 4096, "/l", NameTooLong),
    ):
        with pytest.raises(error):
            await bench.symlink(target, path)
    assert await bench.names("/") == ["a"]
