import pytest
from hypothesis import given
from hypothesis import strategies as st
from threefs_checkpoint.file_layout import Extent, chunk_checksums, chunk_plans, lay_out, pieces_of
from threefs_checkpoint.index import ALIGNMENT_BYTES, StoredShard
from threefs_checkpoint.slices import Slice

from threefs.checksums import crc32c

CHUNK = 256
sizes_of_shards = st.lists(st.integers(1, 1000), max_size=12)


@given(sizes_of_shards)
def test_shards_do_not_overlap_and_large_ones_begin_a_chunk(sizes: list[int]) -> None:
    offsets, end = lay_out(sizes, CHUNK)
    taken = 0
    for offset, size in sorted(zip(offsets, sizes, strict=True)):
        assert offset >= taken and offset % (CHUNK if size >= CHUNK else ALIGNMENT_BYTES) == 0
        taken = offset + size
    assert end == taken


@given(sizes_of_shards)
def test_chunks_have_every_byte_once_and_their_checksums_follow_from_the_pieces(sizes: list[int]) -> None:
    contents = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    offsets, end = lay_out(sizes, CHUNK)
    file = bytearray(end)
    plans = list(chunk_plans(offsets, sizes, CHUNK))
    for plan in plans:
        image = bytearray(plan.length)
        for fill in plan.fills:
            image[fill.at : fill.at + fill.length] = contents[fill.shard][fill.begin : fill.begin + fill.length]
        file[plan.number * CHUNK : plan.number * CHUNK + plan.length] = image
    assert [plan.number for plan in plans] == list(range(-(-end // CHUNK)))
    pieces: list[Extent] = []
    for offset, content in zip(offsets, contents, strict=True):
        assert file[offset : offset + len(content)] == content
        cuts = [*range(offset - offset % CHUNK + CHUNK, offset + len(content), CHUNK)]
        ends = zip([offset, *cuts], [*cuts, offset + len(content)], strict=True)
        crcs = tuple(crc32c(bytes(file[begin:stop])) for begin, stop in ends)
        pieces += pieces_of(StoredShard(Slice((), ()), 0, offset, crcs), len(content), CHUNK)
    assert all(piece.crc == crc32c(bytes(file[piece.offset :][: piece.length])) for piece in pieces)
    expected = [
        (number, len(part), crc32c(part))
        for number in range(len(plans))
        if (part := bytes(file[number * CHUNK : (number + 1) * CHUNK]))
    ]
    assert chunk_checksums(pieces, end, CHUNK) == expected


@pytest.mark.parametrize(
    ("pieces", "length"),
    [
        ([Extent(0, 10, 1), Extent(5, 10, 1)], 15),
        ([Extent(CHUNK, 10, 1)], CHUNK + 10),
        ([Extent(0, 10, 1)], 11),
        ([Extent(0, 10, 1)], 1 << 50),
        ([Extent(0, 10, 1), Extent(2 * CHUNK, 1, 1)], 2 * CHUNK + 1),
        ([], 1),
    ],
)
def test_pieces_of_no_layout_are_refused(pieces: list[Extent], length: int) -> None:
    with pytest.raises(ValueError, match="bytes"):
        chunk_checksums(pieces, length, CHUNK)
