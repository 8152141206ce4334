"""Files as fsspec describes them: dictionaries of attributes, listings and searches.

Symbolic links are shown as what they lead to. A search does not follow a link to a directory, so it ends.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from threefs_client import AsyncFileSystem, Attributes, Entry, paths

from threefs.errors import NotADirectory, NotFound, TooManySymlinks

Info = dict[str, Any]

_DIRECTORIES_AT_ONCE = 32


def info_of(path: str, found: Attributes, link: Attributes | None = None) -> Info:
    """The attributes of a path as fsspec names them. Times are in seconds. `ETag` changes with the content."""
    kind = "file" if found.is_file else "directory" if found.is_directory else "other"
    info = {
        "name": path,
        "type": kind,
        "size": found.length if found.is_file else 0,
        "created": found.birth_ns / 1e9,
        "mtime": found.mtime_ns / 1e9,
        "mtime_ns": found.mtime_ns,
        "mode": found.st_mode,
        "uid": found.uid,
        "gid": found.gid,
        "nlink": found.nlink,
        "ino": found.inode,
        "islink": link is not None,
        "ETag": f"{found.inode:x}-{found.change:x}-{found.length:x}",
    }
    if link is not None:
        info["destination"] = link.target
    return info


async def info(core: AsyncFileSystem, path: str) -> Info:
    """Raises NotFound, NotADirectory."""
    own = await core.stat(path, follow=False)
    if not own.is_symlink:
        return info_of(path, own)
    try:
        return info_of(path, await core.stat(path), own)
    except (NotFound, NotADirectory, TooManySymlinks):  # a link to nowhere
        return info_of(path, own, own)


async def infos(core: AsyncFileSystem, names: Sequence[str]) -> list[Info | None]:
    """The attributes of many paths, in one call unless some are links. None where nothing exists."""
    found: list[Info | None] = []
    links: list[int] = []
    for name, own in zip(names, await core.stat_many(names, follow=False), strict=True):
        if own is not None and own.is_symlink:
            links.append(len(found))
        found.append(None if own is None else info_of(name, own))
    for place in links:
        found[place] = await info(core, names[place])
    return found


async def list_directory(core: AsyncFileSystem, path: str) -> list[Info]:
    """The entries of a directory by name. Raises NotFound, NotADirectory."""
    infos: list[Info] = []
    links: list[Attributes] = []
    places: list[int] = []
    async for entry in core.list(path, with_attributes=True):
        attributes = _attributes(entry)
        infos.append(info_of(paths.join(path, entry.name), attributes))
        if attributes.is_symlink:
            places.append(len(infos) - 1)
            links.append(attributes)
    names = [infos[place]["name"] for place in places]
    for place, link, found in zip(places, links, await core.stat_many(names) if names else (), strict=True):
        infos[place] = info_of(infos[place]["name"], link if found is None else found, link)
    return infos


def _attributes(entry: Entry) -> Attributes:
    assert entry.attributes is not None, "attributes were asked for"
    return entry.attributes


async def find(core: AsyncFileSystem, top: str, *, maxdepth: int | None, prefix: str = "") -> dict[str, Info]:
    """Everything below a directory by path, down to `maxdepth` levels; with `prefix` only what lies below names that
    begin with it. Of a file: itself. Nothing if `top` does not exist.

    Directories that vanish during the search are left out.
    """
    turns = asyncio.Semaphore(_DIRECTORIES_AT_ONCE)

    async def entries(directory: str) -> list[Info]:
        async with turns:
            try:
                return await list_directory(core, directory)
            except (NotFound, NotADirectory):
                return []

    found: dict[str, Info] = {}
    level, depth = [top], 0
    while level and (maxdepth is None or depth < maxdepth):
        listings = await asyncio.gather(*map(entries, level))
        level, depth = [], depth + 1
        for listing in listings:
            for one in listing:
                if depth == 1 and not one["name"].rpartition("/")[2].startswith(prefix):
                    continue
                found[one["name"]] = one
                if is_real_directory(one):
                    level.append(one["name"])
    return found


def is_real_directory(found: Info) -> bool:
    """Whether a search goes into it."""
    return found["type"] == "directory" and not found["islink"]
