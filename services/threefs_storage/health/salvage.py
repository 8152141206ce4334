"""Salvage: the content of a version, put together from a damaged copy and an older version of the same chunk. Pure.

An append and a small change leave the bytes of the version before them where they are. When those bytes are damaged,
a member that left before the change still has them. The checksums of the version say whether they are the right ones.
"""

from collections.abc import Sequence

from threefs.checksums import Buffer, crc32c
from threefs_storage.engine.chunk_record import Version
from threefs_storage.engine.content_plan import expected_checksum


def salvage(version: Version, raw: Buffer, from_block: Sequence[tuple[int, int]], older: Buffer) -> bytearray | None:
    """The content of `version`, or None if neither `raw` nor `older` has a part of it.

    `raw` is the content as it is here, of which only the ranges `from_block` may be damaged. `older` is the content of
    another version.
    """
    content = bytearray(raw)
    assert len(content) == version.length, "a damaged copy is as long as a good one"
    size = version.checksum_block_bytes
    for begin in range(0, version.length, size):
        end = min(begin + size, version.length)
        expected = expected_checksum(version, begin, end)
        if crc32c(content[begin:end]) == expected:
            continue
        for first, last in from_block:
            place = slice(max(first, begin), max(first, begin, min(last, end, len(older))))
            content[place] = older[place]
        if crc32c(content[begin:end]) != expected:
            return None
    return content
