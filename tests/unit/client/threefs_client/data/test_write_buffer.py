from hypothesis import given
from hypothesis import strategies as st
from threefs_client.data.write_buffer import WriteBuffer


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


def test_what_is_put_back_is_not_copied() -> None:
    buffer = WriteBuffer(16)
    buffer.append(3, b"abc")
    offset, data = buffer.drain()
    buffer.put_back(offset, data)
    buffer.append(6, b"d")
    offset, whole = buffer.drain()
    assert offset == 3 and whole is data and whole == b"abcd", "maybe there is no memory for a copy"
