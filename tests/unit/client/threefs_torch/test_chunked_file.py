import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch", reason="torch is not installed (make ml-venv)")
from threefs_torch.chunked_file import ALIGNMENT_BYTES, ChunkPacker, Piece, batches

CHUNK = 256


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(1, 300)), max_size=20))
def test_every_chunk_is_written_once(contents: list[tuple[int, int]]) -> None:
    """Contents come in parts of any length."""
    packer = ChunkPacker(CHUNK)
    pieces: list[Piece] = []
    expected = bytearray()
    for number, (size, part) in enumerate(contents):
        content = bytes([number + 1]) * size
        offset = packer.place(size)
        assert offset >= len(expected) and offset % (CHUNK if size >= CHUNK else ALIGNMENT_BYTES) == 0
        expected += bytes(offset - len(expected)) + content
        for at in range(0, size, part):
            pieces += packer.add(offset + at, memoryview(content)[at : at + part])
    pieces += packer.rest()
    chunks = [offset // CHUNK for offset, _ in pieces]
    assert chunks == sorted(set(chunks))
    assert all(offset % CHUNK + len(view) <= CHUNK for offset, view in pieces)
    found = bytearray(len(expected))
    for offset, view in pieces:
        found[offset : offset + len(view)] = view
    assert found == expected


def test_whole_chunks_are_not_copied() -> None:
    packer = ChunkPacker(CHUNK)
    content = memoryview(bytes(3 * CHUNK))
    pieces = list(packer.add(packer.place(len(content)), content))
    assert [offset for offset, _ in pieces] == [0, CHUNK, 2 * CHUNK]
    assert all(view.obj is content.obj for _, view in pieces)


def test_batches_are_bounded() -> None:
    pieces = [(offset, memoryview(bytes(10))) for offset in range(0, 100, 10)]
    assert [len(batch) for batch in batches(pieces, 25)] == [3, 3, 3, 1]
    assert list(batches([], 25)) == []
