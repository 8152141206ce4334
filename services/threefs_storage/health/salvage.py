"""Salvage: the content of a version, put together from a damaged copy and an older version of the same chunk. Pure.

An append and a small change leave the bytes of the version before them where they are, in a block or in blobs. When
those bytes are damaged, a member that left before the change still has them. The checksums of the version say whether
they are the right ones.
"""

from collections.abc import Iterator, Sequence

from threefs.checksums import Buffer, crc32c
from threefs_storage.engine.chunk_reader import Part
from threefs_storage.engine.chunk_record import Version
from threefs_storage.engine.content_plan import expected_checksum


def salvage(version: Version, raw: Buffer, parts: Sequence[Part], older: Buffer) -> bytearray | None:
    """The content of `version`, or None if neither `raw` nor `older` has a part of it.

    `raw` is the content as it is here, which consists of `parts`. `older` is the content of another version: either it
    has the one part that is damaged, or all parts but that of the last change.
    """
    content = bytearray(raw)
    assert len(content) == version.length, "a damaged copy is as long as a good one"
    size = version.checksum_block_bytes
    for begin in range(0, version.length, size):
        end = min(begin + size, version.length)
        expected = expected_checksum(version, begin, end)
        if crc32c(content[begin:end]) == expected:
            continue
        for places in _guesses(parts, begin, min(end, len(older))):
            guess = content[begin:end]
            for first, last in places:
                guess[first - begin : last - begin] = older[first:last]
            if crc32c(guess) == expected:
                content[begin:end] = guess
                break
        else:
            return None
    return content


def _guesses(parts: Sequence[Part], begin: int, end: int) -> Iterator[Part]:
    """What may have to be taken from an older version within a range."""
    there = [
        [(max(first, begin), min(last, end)) for first, last in part if first < end and last > begin] for part in parts
    ]
    there = [part for part in there if part]
    yield from there
    for newest in range(len(there) + 1):  # the last one: none of them
        yield [place for number, part in enumerate(there) if number != newest for place in part]
