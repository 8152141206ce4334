import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.harness.rpc import announcing
from threefs.errors import ConnectionLost, LimitExceeded, NotFound, ProtocolError, ThreefsError, WrongVersion
from threefs.rpc import frames
from threefs.rpc.frames import HEADER_BYTES, SEGMENT_BYTES, Header
from threefs.rpc.limits import Limits

LIMITS = Limits()


@given(
    st.sampled_from([frames.REQUEST, frames.RESPONSE]),
    st.integers(0, 2**16 - 1),
    st.integers(0, 1),
    st.integers(0, 2**32 - 1),
    st.binary(max_size=3000),
    st.integers(0, LIMITS.payload_bytes),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**64 - 1),
)
def test_a_frame_survives(
    kind: int, method: int, flags: int, call_id: int, body: bytes, payload_bytes: int, deadline_ms: int, request_id: int
) -> None:
    frame = frames.encode(kind, method, flags, call_id, body, payload_bytes, deadline_ms, request_id)
    header = frames.decode(b"x" + frame, 1, LIMITS)
    assert header[1:] == (kind, method, flags, call_id, len(body), payload_bytes, deadline_ms, request_id)
    assert header.inline_bytes == min(header.payload_bytes, SEGMENT_BYTES)
    assert frames.body_at(memoryview(b"x" + frame + b"y"), 1, header) == body
    frames.check_body(header, frames.header_checksum(frame, 0), body)


@given(st.binary(max_size=200), st.data())
def test_no_bit_of_header_and_body_changes_unnoticed(body: bytes, data: st.DataObject) -> None:
    """The chunk, the offset and the version that a write is meant for stand there."""
    frame = bytearray(frames.encode(frames.REQUEST, 301, 0, 7, body, 1000, 5000, 9))
    bit = data.draw(st.integers(0, 8 * len(frame) - 1))
    frame[bit // 8] ^= 1 << bit % 8
    with pytest.raises(ThreefsError):
        header = frames.decode(frame, 0, LIMITS)
        assert header.body_bytes <= len(body) or raises_when_complete(frame, header)
        frames.body_at(frame, 0, header)


def raises_when_complete(frame: bytearray, header: Header) -> bool:
    """The frame says that its body is longer: the checksum is looked at when so much has come."""
    whole = bytes(frame) + bytes(header.body_bytes)
    with pytest.raises(ConnectionLost):
        frames.body_at(whole, 0, header)
    with pytest.raises(ConnectionLost):
        body = whole[HEADER_BYTES : HEADER_BYTES + header.body_bytes]
        frames.check_body(header, frames.header_checksum(whole, 0), body)
    return True


@given(st.binary(min_size=HEADER_BYTES, max_size=HEADER_BYTES))
def test_random_bytes_are_refused_in_words(data: bytes) -> None:
    with pytest.raises(ThreefsError) as caught:
        frames.decode(data, 0, LIMITS)
    assert caught.value.message


@given(st.data())
def test_a_mutated_header_is_refused_or_within_the_limits(data: st.DataObject) -> None:
    encoded = bytearray(frames.encode(frames.REQUEST, 301, 0, 7, bytes(100), 1000, 5000, 9))
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
        (b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n", ProtocolError, "not a threefs frame"),
        (frames.encode(99), ProtocolError, "unknown kind of frame 99"),
        (announcing(frames.encode(frames.REQUEST), LIMITS.body_bytes + 1), LimitExceeded, "body"),
        (frames.encode(frames.REQUEST, payload_bytes=LIMITS.payload_bytes + 1), LimitExceeded, "payload"),
        (frames.encode(frames.CANCEL, payload_bytes=1), ProtocolError, "CANCEL frame must not have payload"),
        (frames.encode(frames.SEGMENT, payload_bytes=SEGMENT_BYTES + 1), ProtocolError, "SEGMENT"),
        (frames.encode(frames.SEGMENT, body=b"x"), ProtocolError, "SEGMENT"),
    ],
)
def test_what_is_wrong_is_said(encoded: bytes, error: type[ThreefsError], says: str) -> None:
    with pytest.raises(error, match=says):
        frames.decode(encoded, 0, LIMITS)


def test_another_version_is_not_taken_for_garbage() -> None:
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


def test_a_request_says_how_many_more_processes_it_passes() -> None:
    def heard(hops: int | None) -> int | None:
        frame = frames.encode(frames.REQUEST, 1, frames.forward_flags(hops))
        return frames.hops(frames.decode(frame, 0, Limits()))

    assert [heard(hops) for hops in (None, 0, 1, 2, 3, 9)] == [None, 0, 1, 2, 3, 3]
    assert frames.forward_flags(9) & (frames.FORWARDED | frames.FAILED) == frames.FORWARDED
