"""Making symbolic links."""

import pytest

from tests.harness.meta_harness import MetaBench, run
from threefs.errors import AlreadyExists, InvalidArgument, NameTooLong, NotFound
from threefs.wire import meta_pb2 as pb


def test_a_link_keeps_its_target_as_it_was_given() -> None:
    async def test(fs: MetaBench) -> None:
        for number, target in enumerate(("a", "/a//b/../c/", "ü", "t" * 4095)):
            made = await fs.symlink(target, f"/{number}")
            assert (made.type, made.target, made.length) == (pb.SYMLINK, target.encode(), len(target.encode()))

    run(test)


def test_what_is_refused() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.create("/a")
        for target, path, error in (
            ("x", "/a", AlreadyExists),
            ("x", "/gone/l", NotFound),
            ("", "/l", NotFound),
            ("a\0b", "/l", InvalidArgument),
            ("t" * 4096, "/l", NameTooLong),
        ):
            with pytest.raises(error):
                await fs.symlink(target, path)
        assert await fs.names("/") == ["a"]

    run(test)
