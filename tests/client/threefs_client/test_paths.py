from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st
from threefs_client import paths

from threefs.errors import InvalidArgument


def test_paths_of_all_kinds() -> None:
    assert paths.encode("/ä") == "/ä".encode()
    assert paths.encode(b"/x") == b"/x"
    assert paths.encode(PurePosixPath("/a/b")) == b"/a/b"
    assert paths.shown(PurePosixPath("/a/b")) == "/a/b"
    assert paths.join("/", "a") == "/a"
    assert paths.join("/d", "a") == "/d/a"


@pytest.mark.parametrize("path", ["a\0b", b"\0", "\ud800", 7, None])
def test_what_cannot_be_a_path_is_refused(path: str) -> None:
    with pytest.raises(InvalidArgument):
        paths.encode(path)


@given(st.binary(max_size=20).filter(lambda name: b"\0" not in name))
def test_any_name_survives_being_listed(name: bytes) -> None:
    assert paths.encode(paths.decode(name)) == name
