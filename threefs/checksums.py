"""CRC32C of payloads and of the checksum blocks of a chunk.

A chunk's data is checksummed per block, so that a small read verifies little. The checksum of a run of blocks follows
from theirs without touching the data again: appending n bytes to a message multiplies its CRC by x^8n modulo the
polynomial (the initial and final inversions cancel out), which is linear and so can be looked up byte by byte.
"""

import struct
from collections.abc import Callable, Iterable
from functools import lru_cache, reduce
from mmap import mmap
from operator import xor

import google_crc32c
import numpy as np
from numpy.typing import NDArray

#: Bytes that one checksum takes among block checksums (little endian).
CRC_BYTES = 4

MIN_CHECKSUM_BLOCK_BYTES = 4 << 10
MAX_CHECKSUM_BLOCK_BYTES = 256 << 10

#: Objects that hold bytes (collections.abc.Buffer comes with Python 3.12).
Buffer = bytes | bytearray | memoryview | mmap

_POLYNOMIAL = 0x82F63B78
_ONE = 1 << 31  # the polynomial 1: bits are reflected, the highest bit is x^0

_value = google_crc32c.value
_frombuffer = np.frombuffer
_U8 = np.dtype(np.uint8)


def crc32c(data: Buffer) -> int:
    """CRC32C of any contiguous buffer. `crc32c(b"123456789") == 0xE3069283`."""
    # The C function takes bytes and numpy arrays only, and the latter without a copy.
    if type(data) is bytes:
        return _value(data)  # type: ignore[no-any-return]
    return _value(_frombuffer(data, _U8))  # type: ignore[no-any-return]


#: CRC32C of a message that goes on with some bytes, from that of its beginning.
crc32c_behind: Callable[[int, bytes], int] = google_crc32c.extend


def checksum_block_bytes(chunk_bytes: int) -> int:
    """Size of the checksum blocks of a chunk: a 256th of it, as a power of two from 4 KiB to 256 KiB."""
    part = 1 << max(0, (chunk_bytes - 1).bit_length() - 8)
    return min(max(part, MIN_CHECKSUM_BLOCK_BYTES), MAX_CHECKSUM_BLOCK_BYTES)


def block_crcs(data: Buffer, block_bytes: int) -> bytes:
    """The CRC32C of each block of `data`, 4 bytes each; the last block may be short."""
    array = _frombuffer(data, _U8)
    whole = len(array) - len(array) % block_bytes
    crcs = [_value(row) for row in array[:whole].reshape(-1, block_bytes)] if whole else []
    if whole < len(array):
        crcs.append(_value(array[whole:]))
    return struct.pack(f"<{len(crcs)}I", *crcs)


def combine(crcs: bytes, block_bytes: int, last_length: int) -> int:
    """CRC32C of the bytes whose blocks have these checksums; `last_length` is the size of the last block in bytes."""
    if not crcs:
        return 0
    last = int.from_bytes(crcs[-CRC_BYTES:], "little")
    whole = len(crcs) // CRC_BYTES - 1
    if whole == 0:
        return last
    table = _tables(block_bytes, 1 << max(8, (whole - 1).bit_length()))
    # Row i of the table serves the block with i blocks of the same size behind it.
    rows = _reversed_rows(whole)
    picked = table[rows + _frombuffer(crcs, _U8, whole * CRC_BYTES)]
    return append(int(np.bitwise_xor.reduce(picked)), last, last_length)


def after_change(checksum: int, before: bytes, after: bytes, blocks: Iterable[int], block_bytes: int, last: int) -> int:
    """CRC32C of the bytes after a change of these blocks, from that before it. `before` and `after` are the checksums
    of all blocks, as many as before; `last` is the size of the last block in bytes.

    What a block adds to the checksum does not depend on the others, so it costs less than `combine` for a few blocks.
    """
    end = len(after) // CRC_BYTES - 1
    for block in blocks:
        place = slice(block * CRC_BYTES, (block + 1) * CRC_BYTES)
        difference = int.from_bytes(before[place], "little") ^ int.from_bytes(after[place], "little")
        if block < end and last == block_bytes:
            difference = _shifted(difference, end - block, block_bytes)
        elif block < end:
            difference = _multiply(_shifted(difference, end - 1 - block, block_bytes), _power(last))
        checksum ^= difference
    return checksum


def _shifted(checksum: int, blocks: int, block_bytes: int) -> int:
    """A checksum times x^(8 * block_bytes * blocks): what it adds with that many blocks behind it."""
    table, row = _tables(block_bytes, 1 << max(8, blocks.bit_length())), blocks * CRC_BYTES * 256
    lookups = (table[row + byte * 256 + ((checksum >> 8 * byte) & 0xFF)] for byte in range(CRC_BYTES))
    return int(reduce(xor, lookups))


def append(first: int, second: int, second_length: int) -> int:
    """CRC32C of two messages joined, from theirs and the length of the second in bytes."""
    return _multiply(first, _power(second_length)) ^ second


def _multiply(a: int, b: int) -> int:
    """The product of two polynomials modulo the CRC polynomial."""
    product = 0
    while a:
        if a & _ONE:
            product ^= b
        a = (a << 1) & 0xFFFFFFFF
        b = (b >> 1) ^ (_POLYNOMIAL if b & 1 else 0)
    return product


@lru_cache(maxsize=4096)
def _power(length: int) -> int:
    """x to the power of 8 * length modulo the CRC polynomial."""
    result, square = _ONE, _ONE >> 8
    while length:
        if length & 1:
            result = _multiply(result, square)
        square = _multiply(square, square)
        length >>= 1
    return result


@lru_cache(maxsize=32)
def _reversed_rows(count: int) -> NDArray[np.intp]:
    """Where the lookups of each byte of `count` checksums begin in the flat table."""
    rows = np.arange(count * CRC_BYTES, dtype=np.intp).reshape(-1, CRC_BYTES)[::-1]
    return np.ascontiguousarray(rows).reshape(-1) * 256


@lru_cache(maxsize=16)
def _tables(block_bytes: int, count: int) -> NDArray[np.uint32]:
    """Flat [i][byte of the checksum][value of that byte] -> that part of the checksum times x^(8 * block_bytes * i)."""
    bits = np.array([1 << bit for bit in range(32)], dtype=np.uint32)
    step = np.array([_multiply(int(bit), _power(block_bytes)) for bit in bits], dtype=np.uint32)
    images = np.empty((count, 32), dtype=np.uint32)
    images[0] = bits
    for i in range(1, count):
        images[i] = _image(images[i - 1], step)
    table = np.zeros((count, CRC_BYTES, 256), dtype=np.uint32)
    for bit in range(8):
        table[:, :, 1 << bit : 2 << bit] = (
            table[:, :, : 1 << bit] ^ images.reshape(count, CRC_BYTES, 8)[:, :, bit, np.newaxis]
        )
    return table.reshape(-1)


def _image(vectors: NDArray[np.uint32], step: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Apply the linear map with columns `step` to each vector."""
    chosen = (vectors[:, np.newaxis] >> np.arange(32, dtype=np.uint32)) & 1
    result: NDArray[np.uint32] = np.bitwise_xor.reduce(np.where(chosen == 1, step, np.uint32(0)), axis=1)
    return result
