from hypothesis import given
from hypothesis import strategies as st

from threefs.ids import ChunkId

chunks = st.builds(ChunkId, st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1))


@given(chunks)
def test_a_key_names_its_chunk(chunk: ChunkId) -> None:
    assert ChunkId.of_key(chunk.key()) == chunk


def test_in_a_message_it_says_what_it_is() -> None:
    assert f"chunk {ChunkId(7, 3)}" == "chunk 3 of inode 7"


@given(chunks, chunks)
def test_keys_sort_like_chunks(one: ChunkId, other: ChunkId) -> None:
    assert (one < other) == (one.key() < other.key())
