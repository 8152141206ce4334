"""What `mv` renames. fsspec's own copies everything and removes the sources afterwards: what was left out of the copy,
or copied to its own place, is lost then."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fsspec.utils import other_paths
from threefs_client import AsyncFileSystem, paths

from threefs.errors import InvalidArgument, IsADirectory, NotFound


class Renames(NamedTuple):
    pairs: list[tuple[str, str]]
    emptied: str = ""  # a directory of which the content is moved; it goes in the end


async def of_one(core: AsyncFileSystem, source: str, target: str, *, into: bool, content: bool) -> Renames:
    """`into`: into the directory `target`, as if that is one. `content`: what is in the source, if `target` is one."""
    old, there = await core.stat_many([source, target], follow=False)
    is_directory = there is not None and there.is_directory
    if source == target:
        return Renames([(source, target)])
    if content and is_directory and old is not None and old.is_directory:
        below = [paths.join(source, entry.name) async for entry in core.list(source)]
        return Renames(_into(below, target), source)
    return Renames(_into([source], target) if into or is_directory else [(source, target)])


def one_by_one(sources: Sequence[str], targets: Sequence[str]) -> Renames:
    return Renames(list(zip(sources, targets, strict=True)))


def of_list(sources: Sequence[str], target: str) -> Renames:
    """Into a directory."""
    return Renames(_into(sources, target))


def of_matches(found: Sequence[str], target: str) -> Renames:
    """The names that match a pattern, into a directory. What lies below one of them goes with it."""
    targets = dict(zip(found, other_paths(list(found), target, exists=len(found) == 1), strict=True))
    return Renames([(name, targets[name]) for name in found if not any(above in targets for above in _above(name))])


async def make(core: AsyncFileSystem, renames: Renames, *, recursive: bool, parents: bool) -> None:
    """Rename one after the other. Before anything is renamed: raises NotFound, IsADirectory without `recursive`, and
    InvalidArgument if two would get the same name, or one would lie below itself."""
    targets = [target for _, target in renames.pairs]
    if len(set(targets)) < len(targets):
        raise InvalidArgument("two of the files would get the same name; move them one by one")
    sources = [*(source for source, _ in renames.pairs), *filter(None, [renames.emptied])]
    for source, found in zip(sources, await core.stat_many(sources, follow=False), strict=True):
        if found is None:
            raise NotFound(f"{source} does not exist")
        if found.is_directory and not recursive:
            raise IsADirectory(f"{source} is a directory: it is moved with recursive=True")
    for source, target in renames.pairs:
        if target.startswith(f"{source}/"):
            raise InvalidArgument(f"{source} cannot be moved below itself, to {target}")
    for source, target in renames.pairs:
        if parents and paths.parent(target) != "/":
            await core.mkdir(paths.parent(target), parents=True)
        await core.rename(source, target, always_moves=True)
    if renames.emptied:
        await core.rmdir(renames.emptied)


def _into(sources: Iterable[str], directory: str) -> list[tuple[str, str]]:
    return [(source, paths.join(directory, source.rpartition("/")[2])) for source in sources]


def _above(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(2, len(parts))]
