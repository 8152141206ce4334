"""The bytes of a version as they lie on a disk, put together without the code that is tested."""

from collections.abc import Callable
from typing import NamedTuple

from threefs_storage.engine.chunk_record import Version
from threefs_storage.engine.overlay import Extent


class Shown(NamedTuple):
    """A range of the content: from this extent, or from the block."""

    begin: int
    end: int
    extent: Extent | None


def shown_ranges(version: Version) -> list[Shown]:
    """All ranges that are stored and not hidden by others, ascending. Between them the content is zeros."""
    if version.overlay is None:
        return [Shown(0, version.length, None)] if version.block is not None and version.length else []
    ranges, at, base = [], 0, version.overlay.base_length
    for extent in version.overlay.extents:
        if at < min(extent.offset, base):
            ranges.append(Shown(at, min(extent.offset, base), None))
        ranges.append(Shown(extent.offset, extent.offset + extent.length, extent))
        at = extent.offset + extent.length
    if at < base:
        ranges.append(Shown(at, base, None))
    return ranges


def assemble(version: Version, block: Callable[[int, int], bytes], blob: Callable[[int], bytes]) -> bytes:
    """`block` gives bytes of the block by begin and end, `blob` the blob of a number."""
    content = bytearray(version.length)
    for begin, end, extent in shown_ranges(version):
        if extent is None:
            part = block(begin, end)
        else:
            part = blob(extent.blob)[extent.blob_offset : extent.blob_offset + extent.length]
        content[begin:end] = part.ljust(end - begin, b"\0")
    return bytes(content)
