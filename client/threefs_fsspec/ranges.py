"""Byte ranges of files, read as one batch: a request per storage process."""

from collections.abc import Iterable, Sequence
from typing import Any

from threefs_client import AsyncFileSystem

#: (path, first byte, byte after the last), as in slices: None is the beginning or the end, a negative number counts
#: from the end.
Range = tuple[str, int | None, int | None]


async def read(core: AsyncFileSystem, ranges: Sequence[Range]) -> list[bytes]:
    """Raises NotFound, IsADirectory and others for the first path that cannot be read."""
    lengths = await _lengths(core, {path for path, start, end in ranges if end is None or end < 0 or (start or 0) < 0})
    rows = []
    for path, start, end in ranges:
        if path in lengths:
            start, end, _ = slice(start, end).indices(lengths[path])
        first, last = start or 0, end or 0
        rows.append((path, first, max(0, last - first)))
    return [bytes(view) for view in await core.read_batch(rows)]


async def _lengths(core: AsyncFileSystem, names: Iterable[str]) -> dict[str, int]:
    """Of files from whose end is counted."""
    ordered = list(names)
    found = await core.stat_many(ordered) if ordered else []
    return {name: (one or await core.stat(name)).length for name, one in zip(ordered, found, strict=True)}


async def read_or_errors(core: AsyncFileSystem, ranges: Sequence[Range]) -> list[Any]:
    """The bytes or the error of each range. Only if one of them fails, they are read file by file."""
    try:
        return list(await read(core, ranges))
    except OSError:
        by_path: dict[str, list[int]] = {}
        for number, (path, _, _) in enumerate(ranges):
            by_path.setdefault(path, []).append(number)
    outcomes: list[Any] = [None] * len(ranges)
    for numbers in by_path.values():
        found: Sequence[Any]
        try:
            found = await read(core, [ranges[number] for number in numbers])
        except OSError as error:
            found = [error] * len(numbers)
        for number, one in zip(numbers, found, strict=True):
            outcomes[number] = one
    return outcomes
