from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st
from threefs_client import paths

from threefs.errors import InvalidArgument, NotFound


def test_paths_of_all_kinds() -> None:
    assert paths.encode("/ä") == "/ä".encode()
    assert paths.encode(b"/x") == b"/x"
    assert paths.encode(PurePosixPath("/a/b")) == b"/a/b"
    assert paths.display(PurePosixPath("/a/b")) == "/a/b"
    assert paths.join("/", "a") == "/a"
    assert paths.join("/d", "a") == "/d/a"


@pytest.mark.parametrize("path", ["a\0b", b"\0", "\ud800", 7, None])
def test_what_cannot_be_a_path_is_refused(path: str) -> None:
    with pytest.raises(InvalidArgument):
        paths.encode(path)


@given(st.binary(max_size=20).filter(lambda name: b"\0" not in name))
def test_any_name_survives_being_listed(name: bytes) -> None:
    assert paths.encode(paths.decode(name)) == name


@pytest.mark.parametrize("path", ["", b"", PurePosixPath("")])
def test_an_empty_path_is_not_the_root(path: str) -> None:
    if isinstance(path, PurePosixPath):  # which says "." for it
        assert paths.place(path).path == b"."
        return
    with pytest.raises(FileNotFoundError, match="the root is /"):
        paths.place(path)


def test_the_directory_above() -> None:
    assert [paths.parent(path) for path in ("/a/b", "/a/", "a", b"/a/b/c/", "/")] == ["/a/", "/", "/", "/a/b/", "/"]


def test_an_error_tells_the_name_that_the_user_knows() -> None:
    error = NotFound("inode 12 of 3 is not inode 123")
    named = paths.with_file_name(error, 12, "/a")
    assert isinstance(named, NotFound) and named.message == "/a of 3 is not inode 123"
    assert paths.with_file_name(error, 12, "") is error and paths.with_file_name(error, 7, "/a") is error
    both = paths.with_file_names(error, {12: "/a", 123: "/b"})
    assert both.message == "/a of 3 is not /b"
