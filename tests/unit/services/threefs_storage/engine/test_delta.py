import pytest
from hypothesis import given
from hypothesis import strategies as st
from threefs_storage.engine.delta import decode_delta, encode_delta

_ITEM = 4
rows = st.lists(st.sampled_from([b"aaaa", b"abcd", b"\0\0\0\0"]), max_size=40).map(b"".join)


@given(rows, rows, st.binary(max_size=10))
def test_a_row_is_found_again(base: bytes, row: bytes, behind: bytes) -> None:
    body = b"before" + encode_delta(base, row, _ITEM)
    assert decode_delta(base, body + behind, 6, len(row), _ITEM) == (row, len(body))


@given(st.binary(min_size=400, max_size=400), st.integers(0, 99), st.binary(min_size=4, max_size=4))
def test_one_changed_item_is_one_item_long(base: bytes, place: int, item: bytes) -> None:
    row = base[: place * _ITEM] + item + base[(place + 1) * _ITEM :]
    assert len(encode_delta(base, row, _ITEM)) <= 4 + _ITEM


@given(rows, st.binary(max_size=60), st.integers(0, 60))
def test_what_makes_no_sense_is_refused_or_has_the_right_length(base: bytes, body: bytes, items: int) -> None:
    if len(body) < 4:
        return
    try:
        row, end = decode_delta(base, body, 0, items * _ITEM, _ITEM)
    except ValueError:
        return
    assert len(row) == items * _ITEM and end <= len(body)


def test_more_than_the_base_has_is_refused() -> None:
    body = encode_delta(b"aaaabbbb", b"aaaabbbb", _ITEM)
    with pytest.raises(ValueError, match="cannot be part"):
        decode_delta(b"aaaa", body, 0, 8, _ITEM)
