from hypothesis import given
from hypothesis import strategies as st
from threefs_client.data.read_ahead_window import FIRST_BYTES, MAX_PART_BYTES, ReadAheadWindow

LIMIT = 8 << 20
KIB = 1 << 10
END = 1 << 40


def read(window: ReadAheadWindow, offset: int, length: int, file_end: int = END) -> list[tuple[int, int]]:
    inside = offset < window.end and offset >= window.next - length
    return window.ask(offset, length, file_end) if window.advance(offset, length, inside=inside) else []


def test_the_window_doubles_while_reads_are_sequential_and_collapses_on_a_seek() -> None:
    window = ReadAheadWindow(LIMIT)
    sizes = [window.size for number in range(4 * LIMIT // KIB) if read(window, number * KIB, KIB)]
    growing = sizes[: sizes.index(LIMIT) + 1]
    assert growing == [FIRST_BYTES << step for step in range(len(growing))] and set(sizes[len(growing) :]) == {LIMIT}
    assert read(window, 1 << 30, KIB) == [] and window.size == 0
    assert read(window, (1 << 30) + KIB, KIB) == [((1 << 30) + KIB, FIRST_BYTES - KIB)] or window.size == FIRST_BYTES


def test_a_small_file_comes_in_one_request() -> None:
    assert read(ReadAheadWindow(LIMIT), 0, 100, 5000) == [(0, 5000)]
    assert read(ReadAheadWindow(LIMIT), 0, 100, 0) == []


def test_a_large_read_asks_only_for_what_is_behind_it() -> None:
    window = ReadAheadWindow(LIMIT)
    assert read(window, 0, 1 << 20) == [((1 << 20) + n * (512 << 10), 512 << 10) for n in range(2)]
    assert read(window, 1 << 20, 1 << 20) == [((2 << 20) + n * (1 << 20), 1 << 20) for n in range(2)]


def test_a_read_of_the_limit_or_more_asks_for_nothing() -> None:
    window = ReadAheadWindow(LIMIT)
    assert read(window, 0, LIMIT) == read(window, LIMIT, LIMIT) == []
    assert read(ReadAheadWindow(0), 0, 10) == read(ReadAheadWindow(100), 0, 10) == []


@given(st.lists(st.integers(1, 3 << 20), min_size=1, max_size=60), st.integers(0, 1 << 26))
def test_what_a_stream_asks_for_is_contiguous_and_bounded(lengths: list[int], file_end: int) -> None:
    window, asked, offset = ReadAheadWindow(LIMIT), 0, 0
    for length in lengths:
        for start, size in read(window, offset, length, file_end):
            assert 0 < size <= MAX_PART_BYTES and start + size <= file_end
            assert start >= asked, "nothing is asked for twice"
            assert start == asked or start == offset + length, "there are no gaps but those that the read fills"
            asked = start + size
        offset += length
        assert asked <= offset + LIMIT
        if offset < file_end and length < LIMIT:
            assert asked >= min(file_end, offset), "the reader is never before what it has asked for"


@given(st.lists(st.tuples(st.integers(0, 1 << 24), st.integers(1, 1 << 20), st.booleans()), max_size=60))
def test_seeks_never_ask_for_more_than_the_limit(reads: list[tuple[int, int, bool]]) -> None:
    window, offset = ReadAheadWindow(LIMIT), 0
    for place, length, jump in reads:
        offset = place if jump else offset
        inside = False
        if window.advance(offset, length, inside=inside):
            window.clear()
            parts = window.ask(offset, length, END)
            assert sum(size for _, size in parts) <= LIMIT + FIRST_BYTES
            assert all(offset <= start < offset + length + LIMIT for start, _ in parts)
        offset += length
