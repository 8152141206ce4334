"""A depth-first walk through a tree, page by page. It holds one page of directories per level, however large they
are."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from threefs_client import paths
from threefs_client.attributes import Entry
from threefs_client.paths import Path

#: (path of a directory, its directories, its other entries)
Step = tuple[str, list[Entry], list[Entry]]


@dataclass(slots=True)
class _Level:
    """A directory that is being walked."""

    path: str
    after: str = ""
    more: bool = True  # entries behind `after`
    subdirectories: list[Entry] = field(default_factory=list)  # of the last page
    entered: int = 0  # how many of them the walk has entered


class Walk:
    def __init__(self, top: Path) -> None:
        self._levels = [_Level(paths.display(top))]

    def next_page(self) -> tuple[str, str] | None:
        """(directory, name to list behind) of the next page to fetch; None at the end."""
        while self._levels:
            level = self._levels[-1]
            if level.entered < len(level.subdirectories):
                name = level.subdirectories[level.entered].name
                level.entered += 1
                self._levels.append(_Level(paths.join(level.path, name)))
            elif level.more:
                return level.path, level.after
            else:
                self._levels.pop()
        return None

    def skip_missing(self) -> bool:
        """The directory of the page was removed since it was listed. False if the walk began with it."""
        if len(self._levels) < 2:
            return False
        self._levels.pop()
        return True

    def take_page(self, entries: Sequence[Entry], more: bool) -> Step:
        """Take the entries of the page; returns what the walk yields for it."""
        level = self._levels[-1]
        directories = [entry for entry in entries if entry.is_directory]
        level.subdirectories, level.entered = directories, 0
        level.more = more and bool(entries)
        if entries:
            level.after = entries[-1].name
        return level.path, directories, [entry for entry in entries if not entry.is_directory]
