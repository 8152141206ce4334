import itertools

from hypothesis import given
from hypothesis import strategies as st

from threefs.env.net import Buffer
from threefs.rpc import frames
from threefs.rpc.frames import HEADER_BYTES, SEGMENT_BYTES
from threefs.rpc.limits import Limits
from threefs.rpc.send_queue import Outgoing


@given(st.integers(0, 3 * SEGMENT_BYTES), st.lists(st.integers(0, 2**20), max_size=5))
def test_a_message_is_cut_into_frames_of_at_most_a_segment(length: int, cuts: list[int]) -> None:
    payload = bytes(place // 977 & 255 for place in range(length))
    places = [0, *sorted(cut % (length + 1) for cut in cuts), length]
    views = [memoryview(payload)[begin:end] for begin, end in itertools.pairwise(places)]
    message = Outgoing(frames.encode(frames.REQUEST, 1, 0, 7, b"body", length), 7, views, length, None, None)
    got = bytearray()
    while True:
        pieces: list[Buffer] = []
        total = message.next_frame(pieces)
        data = b"".join(pieces)
        assert len(data) == total
        header = frames.decode(data, 0, Limits())
        assert header.kind == (frames.SEGMENT if got else frames.REQUEST) and header.call_id == 7
        inline = data[HEADER_BYTES + header.body_bytes :]
        assert len(inline) == header.inline_bytes <= SEGMENT_BYTES
        got += inline
        if not message.remaining:
            break
    assert got == payload
