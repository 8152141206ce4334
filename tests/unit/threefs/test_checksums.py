import mmap

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from threefs.checksums import after_change, append, block_crcs, checksum_block_bytes, combine, crc32c, crc32c_behind

#: From RFC 3720, appendix B.4.
VECTORS = [
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (b"123456789", 0xE3069283),
    (b"", 0),
]


@pytest.mark.parametrize(("data", "expected"), VECTORS)
def test_known_vectors(data: bytes, expected: int) -> None:
    assert crc32c(data) == expected


def test_any_buffer_is_taken() -> None:
    data = bytes(range(256)) * 16
    mapped = mmap.mmap(-1, len(data))
    mapped[:] = data
    for buffer in (data, bytearray(data), memoryview(data), memoryview(bytearray(data))[:], mapped):
        assert crc32c(buffer) == crc32c(data)
    assert crc32c(memoryview(mapped)[5:99]) == crc32c(data[5:99])


@given(data=st.binary(max_size=3000), block_bytes=st.sampled_from([1, 3, 16, 64, 512]))
def test_combine_is_the_checksum_of_the_whole(data: bytes, block_bytes: int) -> None:
    crcs = block_crcs(data, block_bytes)
    blocks = [data[at : at + block_bytes] for at in range(0, len(data), block_bytes)]
    assert crcs == b"".join(crc32c(block).to_bytes(4, "little") for block in blocks)
    assert combine(crcs, block_bytes, len(blocks[-1]) if blocks else 0) == crc32c(data)


@given(
    blocks=st.integers(0, 300), last=st.integers(1, 4096), block_bytes=st.sampled_from([4096, 8192]), seed=st.integers()
)
def test_combine_at_real_sizes(blocks: int, last: int, block_bytes: int, seed: int) -> None:
    data = np.random.default_rng(abs(seed)).bytes(blocks * block_bytes + last)
    assert combine(block_crcs(data, block_bytes), block_bytes, last) == crc32c(data)


@pytest.mark.parametrize("block_bytes", [4 << 10, 64 << 10, 256 << 10])
def test_a_full_chunk_of_256_blocks(block_bytes: int) -> None:
    data = np.random.default_rng(7).bytes(256 * block_bytes)
    assert combine(block_crcs(data, block_bytes), block_bytes, block_bytes) == crc32c(data)


@given(
    blocks=st.integers(0, 300),
    last=st.one_of(st.just(4096), st.integers(1, 4096)),
    changed=st.sets(st.integers(0, 300), max_size=3),
)
def test_the_checksum_after_a_change_follows_from_the_changed_blocks(blocks: int, last: int, changed: set[int]) -> None:
    content = bytearray(np.random.default_rng(blocks).bytes(blocks * 4096 + last))
    before = block_crcs(content, 4096)
    changed = {block for block in changed if block <= blocks}
    for block in changed:
        content[block * 4096] ^= 0xA5
    after = block_crcs(content, 4096)
    assert after_change(combine(before, 4096, last), before, after, changed, 4096, last) == crc32c(content)


@given(first=st.binary(max_size=200), second=st.binary(max_size=200))
def test_append(first: bytes, second: bytes) -> None:
    assert append(crc32c(first), crc32c(second), len(second)) == crc32c(first + second)


@pytest.mark.parametrize(
    ("chunk_bytes", "expected"),
    [(1, 4096), (64 << 10, 4096), (1 << 20, 4096), ((1 << 20) + 1, 8192), (4 << 20, 16 << 10), (64 << 20, 256 << 10)],
)
def test_checksum_block_bytes(chunk_bytes: int, expected: int) -> None:
    assert checksum_block_bytes(chunk_bytes) == expected


@given(st.binary(), st.binary())
def test_a_message_that_goes_on(first: bytes, rest: bytes) -> None:
    assert crc32c_behind(crc32c(first), rest) == crc32c(first + rest)
