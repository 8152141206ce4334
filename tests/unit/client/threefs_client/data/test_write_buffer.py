import pytest
from hypothesis import given
from hypothesis import strategies as st
from threefs_client.data import write_buffer
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


def put_back() -> tuple[WriteBuffer, memoryview]:
    """A buffer with what it had before, and a view of that which somebody still holds."""
    buffer = WriteBuffer(16)
    buffer.append(3, b"abc")
    offset, data = buffer.drain()
    held = memoryview(data)
    buffer.put_back(offset, data)
    return buffer, held


def test_what_is_put_back_is_written_over_while_others_have_what_was_drained() -> None:
    buffer, held = put_back()
    buffer.append(4, b"xyz")
    assert buffer.drain() == (3, bytearray(b"axyz")) and bytes(held) == b"abc"


def test_what_there_is_no_memory_to_copy_is_put_back_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*copied: object) -> bytearray:
        if copied:
            raise MemoryError
        return bytearray()

    with monkeypatch.context() as patched:
        patched.setattr(write_buffer, "bytearray", fail, raising=False)
        buffer, held = put_back()
    buffer.append(6, b"d")
    assert buffer.drain() == (3, bytearray(b"abcd")) and bytes(held) == b"abc"
