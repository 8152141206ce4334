import struct

import pytest
from threefs_fuse import init_handshake, protocol
from threefs_fuse.init_handshake import SessionOptions
from threefs_fuse.protocol import Feature
from threefs_fuse.requests import Malformed

WISHES = SessionOptions(Feature.ASYNC_READ | Feature.POSIX_LOCKS | Feature.DIRECT_IO_ALLOW_MMAP, background=40)


def init(major: int, minor: int, flags: int) -> memoryview:
    return memoryview(struct.pack("=IIIII44x", major, minor, 131072, flags & 0xFFFFFFFF, flags >> 32))


def test_what_both_want() -> None:
    offered = (
        Feature.ASYNC_READ | Feature.INIT_EXT | Feature.DIRECT_IO_ALLOW_MMAP | Feature.MAX_PAGES | Feature.BIG_WRITES
    )
    agreed, answer = init_handshake.answer(init(7, 45, offered), WISHES)
    assert agreed is not None and agreed.minor == protocol.NEWEST_MINOR
    assert agreed.features == offered & ~Feature.BIG_WRITES
    assert len(answer) == 64
    major, minor, ahead, low, background, congestion, write, grain, pages, _, high = struct.unpack_from(
        "=IIIIHHIIHHI", answer
    )
    assert (major, minor, ahead, background, congestion) == (7, protocol.NEWEST_MINOR, 131072, 40, 30)
    assert low | high << 32 == agreed.features
    assert (write, grain, pages) == (1 << 20, 1, 256)


def test_an_older_kernel_has_no_second_word() -> None:
    agreed, _ = init_handshake.answer(init(7, 31, Feature.ASYNC_READ | Feature.DIRECT_IO_ALLOW_MMAP), WISHES)
    assert agreed is not None and agreed.minor == 31 and agreed.features == Feature.ASYNC_READ


def test_another_version_is_asked_for_and_too_old_is_refused() -> None:
    agreed, answer = init_handshake.answer(init(8, 0, 0), WISHES)
    assert agreed is None and struct.unpack_from("=II", answer) == (7, protocol.NEWEST_MINOR)
    for major, minor in ((7, 30), (6, 99)):
        with pytest.raises(Malformed):
            init_handshake.answer(init(major, minor, 0), WISHES)
