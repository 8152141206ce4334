"""What is a path, what is a name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from threefs_meta.resolve import paths
from threefs_meta.resolve.paths import path_of, shown_directory

from tests.harness.meta_harness import MetaBench
from threefs.errors import InvalidArgument, NameTooLong, NotFound
from threefs.wire import meta_pb2 as pb


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        (b"", []),
        (b"/", []),
        (b"a", [b"a"]),
        (b"//a///b/", [b"a", b"b"]),
        (b"/./a/../b", [b".", b"a", b"..", b"b"]),
        ("/ä/字".encode(), ["ä".encode(), "字".encode()]),
        (b"/" + b"n" * 255, [b"n" * 255]),
    ],
)
def test_split(path: bytes, parts: list[bytes]) -> None:
    assert paths.split(path) == parts


def test_limits_of_paths() -> None:
    assert len(paths.split(b"/a" * 2048)) == 2048
    for path in (b"/a" * 2048 + b"/", b"n" * 256, b"/ok/" + b"n" * 256 + b"/ok"):
        with pytest.raises(NameTooLong):
            paths.split(path)


@pytest.mark.parametrize("name", [b"\0", b"a\0b", b"\xff\0"])
def test_no_name_contains_nul(name: bytes) -> None:
    for check in (paths.split, paths.check_name, paths.check_target, paths.check_bytes):
        with pytest.raises(InvalidArgument):
            check(name)


@pytest.mark.parametrize(
    "name", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xc0\xaf", b"\n", b" ", b"\\", bytes(range(1, 47))]
)
def test_a_name_need_not_be_text(name: bytes) -> None:
    paths.check_name(name)
    paths.check_target(name)
    assert paths.split(b"/a/" + name) == [b"a", name]


@pytest.mark.parametrize("name", [b"", b".", b"..", b"a/b", b"/"])
def test_names_of_no_entry(name: bytes) -> None:
    with pytest.raises(InvalidArgument):
        paths.check_name(name)


def test_limits_of_names_and_targets() -> None:
    paths.check_name(b"n" * 255)
    paths.check_target(b"t" * 4095)
    with pytest.raises(NameTooLong):
        paths.check_name(b"n" * 256)
    with pytest.raises(NameTooLong):
        paths.check_target(b"t" * 4096)
    with pytest.raises(NotFound):
        paths.check_target(b"")


@given(st.binary(max_size=300))
def test_any_bytes_are_split_or_refused(path: bytes) -> None:
    try:
        parts = paths.split(path)
    except (InvalidArgument, NameTooLong):
        return
    assert all(part and b"/" not in part and b"\0" not in part for part in parts)
    assert b"/".join(parts).replace(b"/", b"") == path.replace(b"/", b"")


@given(st.binary(max_size=6000), st.integers(0, 3))
def test_what_is_shown_is_text_for_people(path: bytes, base: int) -> None:
    shown = paths.shown_place(pb.Place(base=base, path=path))
    assert shown.isascii() or shown.encode("utf-8")
    assert "\0" not in shown and len(shown) < 300


def test_a_name_that_is_too_long_is_shown_even_if_it_is_cut_within_a_letter() -> None:
    """Found by fuzzing."""
    with pytest.raises(NameTooLong, match="at most 255 bytes, not 341"):
        paths.split(b"/x" + "ä".encode() * 170)


def test_names_that_can_be_looked_up() -> None:
    assert paths.is_plain(b"a") and paths.is_plain(b"n" * 255) and paths.is_plain(b"...")
    assert not any(paths.is_plain(name) for name in (b"", b".", b"..", b"n" * 256, b"a\0"))


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
    assert await shown_directory(bench.context.engine.begin(), below.inode) == f"inode {below.inode}"
