"""The table of a shard: checksums of its samples and, where these differ in length, lengths. Pure: no I/O here.

The table consists of pages, so a reader gets the page of a sample without the others. A page contains a checksum of the
rest of it, then the checksums of its samples. In a shard whose samples differ in length it also has the offset of its
first sample in the shard file, and the lengths.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from threefs.checksums import CRC_BYTES, crc32c
from threefs.errors import Corrupt
from threefs_data import format

#: A page is read for one sample at random, so it is small beside a sample of 4 KiB. Where samples are larger, all pages
#: fit into memory, and larger ones would not be fewer reads.
PAGE_BYTES = 512

_ONE_LENGTH = np.dtype([("crc", "<u4"), ("crcs", "<u4", (127,))])
_LENGTHS = np.dtype(
    [("crc", "<u4"), ("unused", "<u4"), ("start", "<u8"), ("lengths", "<u4", (62,)), ("crcs", "<u4", (62,))]
)
assert _ONE_LENGTH.itemsize == _LENGTHS.itemsize == PAGE_BYTES


def page_samples(has_lengths: bool) -> int:
    return 62 if has_lengths else 127


def columns(has_lengths: bool) -> int:
    """Of a decoded page: checksums, then the starts of its samples and the end of the last one."""
    return page_samples(has_lengths) * 2 + 1 if has_lengths else page_samples(has_lengths)


def pages(samples: int, has_lengths: bool) -> int:
    """The number of pages of a table. The last one is padded with zeros."""
    return -(-samples // page_samples(has_lengths))


def encode(crcs: bytes, lengths: Sequence[int], has_lengths: bool) -> bytes:
    """The table of a shard that has samples with these checksums and lengths."""
    every = page_samples(has_lengths)
    table = np.zeros(pages(len(lengths), has_lengths), _LENGTHS if has_lengths else _ONE_LENGTH)
    table["crcs"] = _padded(np.frombuffer(crcs, "<u4"), len(table) * every).reshape(-1, every)
    if has_lengths:
        table["lengths"] = _padded(np.array(lengths, np.uint32), len(table) * every).reshape(-1, every)
        spans = table["lengths"].sum(axis=1, dtype=np.uint64)
        table["start"] = np.cumsum(spans) - spans + np.uint64(format.DATA_START)
    content = bytearray(table.tobytes())
    for at in range(0, len(content), PAGE_BYTES):
        crc = crc32c(memoryview(content)[at + CRC_BYTES : at + PAGE_BYTES])
        content[at : at + CRC_BYTES] = crc.to_bytes(CRC_BYTES, "little")
    return bytes(content)


def _padded(values: NDArray[np.uint32], length: int) -> NDArray[np.uint32]:
    return np.concatenate([values, np.zeros(length - len(values), np.uint32)])


def decode(
    content: Sequence[memoryview], has_lengths: bool, data_bytes: Sequence[int], where: Sequence[str]
) -> NDArray[np.uint64]:
    """A row of `columns` values for each of these pages. `data_bytes` is that of its shard. Raises Corrupt."""
    for page, name in zip(content, where, strict=True):
        if len(page) != PAGE_BYTES:
            raise Corrupt(f"{name}: a page of the table is cut short")
        if crc32c(page[CRC_BYTES:]) != int.from_bytes(page[:CRC_BYTES], "little"):
            raise Corrupt(f"{name}: a page of the table does not match its checksum")
    table = np.frombuffer(b"".join(content), _LENGTHS if has_lengths else _ONE_LENGTH)
    every = page_samples(has_lengths)
    rows = np.empty((len(table), columns(has_lengths)), np.uint64)
    rows[:, :every] = table["crcs"]
    if not has_lengths:
        return rows
    rows[:, every] = table["start"]
    np.cumsum(table["lengths"], axis=1, dtype=np.uint64, out=rows[:, every + 1 :])
    rows[:, every + 1 :] += rows[:, every : every + 1]
    ends = np.array(data_bytes, np.uint64)
    wrong = (table["lengths"].max(axis=1, initial=0) > format.MAX_SAMPLE_BYTES) | (table["start"] > ends)
    wrong |= rows[:, -1] > ends
    if wrong.any():
        raise Corrupt(f"{where[int(wrong.argmax())]}: the table goes beyond the samples")
    return rows
