from hypothesis import given
from hypothesis import strategies as st
from threefs_client.data.buffering import ReadAhead, WriteBuffer


def test_the_buffer_ends_at_a_multiple_of_its_size() -> None:
    buffer = WriteBuffer(100)
    assert buffer.room(250) == 50
    buffer.append(250, b"x" * 20)
    assert buffer.room(270) == 30
    assert buffer.room(260) == 40, "what is held may be overwritten"
    assert buffer.room(271) == 0, "no gap"
    assert buffer.room(249) == 0
    assert not buffer.is_full
    buffer.append(270, b"y" * 30)
    assert buffer.is_full
    assert buffer.end == 300
    assert buffer.drain() == (250, bytearray(b"x" * 20 + b"y" * 30))
    assert len(buffer) == buffer.end == 0


@given(st.lists(st.tuples(st.integers(0, 120), st.binary(min_size=1, max_size=30)), max_size=20))
def test_what_is_taken_is_what_was_added(writes: list[tuple[int, bytes]]) -> None:
    buffer, stored, model = WriteBuffer(64), bytearray(200), bytearray(200)
    for offset, data in writes:
        if buffer.room(offset) < len(data):
            start, held = buffer.drain()
            stored[start : start + len(held)] = held
        data = data[: buffer.room(offset)]
        buffer.append(offset, data)
        model[offset : offset + len(data)] = data
    start, held = buffer.drain()
    stored[start : start + len(held)] = held
    assert stored == model


def test_the_window_grows_with_sequential_reads_only() -> None:
    window, content = ReadAhead(200_000), memoryview(bytes(300_000))

    def read(offset: int) -> int:
        if window.get(offset, 10) is not None:
            return 0
        size = window.fetch_bytes(offset, 10)
        window.put(offset, content[offset : offset + size])
        assert window.get(offset, 10) is not None
        return size

    assert read(0) == 65_536
    assert read(10) == 0
    assert read(200_000) == 10, "a jump"
    assert read(200_010) == 65_536
    assert read(100) == 10
    window.clear()
    assert window.get(100, 1) is None
    assert len(window.rest(100)) == 0
    assert read(110) == 65_536
    assert len(window.rest(65_000)) == 65_536 + 110 - 65_000
