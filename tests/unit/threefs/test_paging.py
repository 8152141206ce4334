import pytest

from threefs.errors import ProtocolError
from threefs.ids import ChunkId
from threefs.paging import next_place


def test_the_next_page_begins_where_this_one_ends() -> None:
    assert next_place("names", b"", b"a") == b"a"
    assert next_place("chunks", ChunkId(7, 2), ChunkId(7, 3)) == ChunkId(7, 3)
    assert next_place("chunks", None, ChunkId(0, 0)) == ChunkId(0, 0)


@pytest.mark.parametrize("end", [None, b"", b"a", b"b"])
def test_a_page_that_does_not_go_on_is_an_error(end: bytes | None) -> None:
    with pytest.raises(ProtocolError, match=r"names does not go on: the page behind b'b'"):
        next_place("names", b"b", end)
