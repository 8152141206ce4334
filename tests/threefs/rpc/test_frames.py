import pytest
from hypothesis import given
from hypothesis import strategies as st

from threefs.errors import LimitExceeded, NotFound, ProtocolError, ThreefsError, WrongVersion
from threefs.rpc import frames
from threefs.rpc.frames import HEADER_BYTES, SEGMENT_BYTES, Header
from threefs.rpc.limits import Limits

LIMITS = Limits()


@given(
    st.tuples(
        st.sampled_from([frames.REQUEST, frames.RESPONSE]),
        st.integers(0, 2**16 - 1),
        st.integers(0, 1),
        st.integers(0, 2**32 - 1),
        st.integers(0, LIMITS.body_bytes),
        st.integers(0, LIMITS.payload_bytes),
        st.integers(0, 2**32 - 1),
        st.integers(0, 2**64 - 1),
    )
)
def test_a_header_survives(fields: tuple[int, int, int, int, int, int, int, int]) -> None:
    header = Header(*fields)
    encoded = b"x" + frames.encode(*fields)
    assert frames.decode(encoded, 1, LIMITS) == header
    assert header.inline_bytes == min(header.payload_bytes, SEGMENT_BYTES)


@given(st.binary(min_size=HEADER_BYTES, max_size=HEADER_BYTES))
def test_random_bytes_are_refused_in_words(data: bytes) -> None:
    with pytest.raises(ThreefsError) as caught:
        frames.decode(data, 0, LIMITS)
    assert caught.value.message


@given(st.data())
def test_a_mutated_header_is_refused_or_within_the_limits(data: st.DataObject) -> None:
    encoded = bytearray(frames.encode(frames.REQUEST, 301, 0, 7, 100, 1000, 5000, 9))
    encoded[data.draw(st.integers(0, HEADER_BYTES - 1))] = data.draw(st.integers(0, 255))
    try:
        header = frames.decode(encoded, 0, LIMITS)
    except ThreefsError:
        return
    assert header.body_bytes <= LIMITS.body_bytes
    assert header.payload_bytes <= LIMITS.payload_bytes


@pytest.mark.parametrize(
    ("encoded", "error", "says"),
    [
        (b"GET / HTTP/1.1\r\nHost: example.org\r\n", ProtocolError, "not a threefs frame"),
        (frames.encode(99), ProtocolError, "unknown kind of frame 99"),
        (frames.encode(frames.REQUEST, body_bytes=LIMITS.body_bytes + 1), LimitExceeded, "body"),
        (frames.encode(frames.REQUEST, payload_bytes=LIMITS.payload_bytes + 1), LimitExceeded, "payload"),
        (frames.encode(frames.CANCEL, payload_bytes=1), ProtocolError, "CANCEL frame has no payload"),
        (frames.encode(frames.SEGMENT, payload_bytes=SEGMENT_BYTES + 1), ProtocolError, "SEGMENT"),
        (frames.encode(frames.SEGMENT, body_bytes=1), ProtocolError, "SEGMENT"),
    ],
)
def test_what_is_wrong_is_said(encoded: bytes, error: type[ThreefsError], says: str) -> None:
    with pytest.raises(error, match=says):
        frames.decode(encoded, 0, LIMITS)


def test_another_version_is_told_apart_from_garbage() -> None:
    encoded = bytearray(frames.encode(frames.HELLO))
    encoded[2] += 1
    with pytest.raises(WrongVersion, match=f"version {frames.PROTOCOL + 1}"):
        frames.decode(encoded, 0, LIMITS)


def test_errors_travel_in_bodies() -> None:
    back = frames.error_from(frames.error_body(NotFound("/a")))
    assert type(back) is NotFound and str(back) == "/a"
    assert len(frames.error_body(NotFound("x" * 100_000))) < 10_000


@given(st.binary(max_size=200))
def test_an_error_that_cannot_be_read_is_one_too(body: bytes) -> None:
    assert isinstance(frames.error_from(body), ThreefsError)
