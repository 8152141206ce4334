"""A dictionary that forgets: the caches and memories of a process have a bound each."""

from collections import OrderedDict
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class BoundedDict(OrderedDict[K, V]):
    """At most `most` entries are kept by `put`: of more, the one that was put longest ago goes.

    An ordered dictionary, because it finds its oldest entry at once; a plain one steps over all those that went before.
    """

    def __init__(self, most: int) -> None:
        assert most > 0, "a dictionary without room is of no use"
        super().__init__()
        self._most = most

    def put(self, key: K, value: V) -> tuple[K, V] | None:
        """Make `key` the newest entry. Returns the entry that had to go, if one had to."""
        self[key] = value
        self.move_to_end(key)
        return self.popitem(last=False) if len(self) > self._most else None
