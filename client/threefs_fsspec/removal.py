"""Removes files and trees."""

from collections.abc import Sequence

from threefs_client import AsyncFileSystem

from threefs.errors import IsADirectory


async def files(core: AsyncFileSystem, names: Sequence[str]) -> None:
    for found in await core.stat_many(names, follow=False):
        if found is not None and found.is_directory:
            raise IsADirectory("directories are removed with recursive=True")
    for error in await core.remove_many(names):
        if error is not None:
            raise error


async def trees(core: AsyncFileSystem, names: Sequence[str]) -> None:
    """In the order of names, so a directory comes before what lies below it, and is gone by then."""
    removed: list[str] = []
    for name in names:
        if removed and name.startswith(removed[-1] + "/"):
            continue
        await core.remove(name, recursive=True)
        removed.append(name)
