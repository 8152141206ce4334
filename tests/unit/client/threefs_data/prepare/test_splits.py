import pytest
from hypothesis import given
from hypothesis import strategies as st
from threefs_data.prepare.sources import JSONL, TEXT, Source
from threefs_data.prepare.splits import Piece, Split, cut

from threefs.errors import InvalidArgument

LENGTHS = st.lists(st.tuples(st.integers(0, 50), st.booleans()), max_size=20)


def is_text(source: Source) -> bool:
    return source.kind == TEXT


def made(lengths: list[tuple[int, bool]]) -> list[Source]:
    return [Source(f"/{number}", TEXT if whole else JSONL, length, 1) for number, (length, whole) in enumerate(lengths)]


@given(LENGTHS, st.integers(1, 30))
def test_every_byte_is_in_one_piece_in_order(lengths: list[tuple[int, bool]], split_bytes: int) -> None:
    sources = made(lengths)
    splits = list(cut(sources, split_bytes, is_text))
    pieces = [piece for split in splits for piece in split.pieces]
    expected = [(source, at) for source in sources for at in range(source.length)]
    assert [(piece.source, at) for piece in pieces for at in range(piece.start, piece.end)] == expected
    assert all(split.length >= split_bytes for split in splits[:-1]), "only the last one is smaller"
    for piece in pieces:
        assert not is_text(piece.source) or (piece.start, piece.end) == (0, piece.source.length)
        assert is_text(piece.source) or piece.end - piece.start <= split_bytes


def test_another_file_or_other_settings_make_another_key() -> None:
    source = Source("/a", TEXT, 10, 1)
    keys = {
        Split((Piece(source, 0, 10),)).key("s"),
        Split((Piece(source, 0, 10),)).key("t"),
        Split((Piece(source, 0, 9),)).key("s"),
        Split((Piece(Source("/a", TEXT, 10, 2), 0, 10),)).key("s"),
        Split((Piece(Source("/b", TEXT, 10, 1), 0, 10),)).key("s"),
    }
    assert len(keys) == 5
    assert Split((Piece(source, 0, 10),)).key("s") in keys, "equal ones are equal"


@pytest.mark.parametrize("split_bytes", [0, 1 << 50])
def test_impossible_sizes_are_refused(split_bytes: int) -> None:
    with pytest.raises(InvalidArgument, match=str(split_bytes)):
        list(cut([], split_bytes, is_text))
