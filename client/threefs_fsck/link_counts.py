"""Names per inode, and the way from directories to the root: eight bytes per entry, sixteen per directory."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from threefs.ids import ROOT

Numbers = NDArray[np.uint64]


class LinkCounts:
    """How many entries name each inode."""

    def __init__(self) -> None:
        self._pages: list[Numbers] = []
        self._inodes: Numbers = np.empty(0, np.uint64)
        self._counts: NDArray[np.int64] = np.empty(0, np.int64)

    def add(self, inodes: Iterable[int]) -> None:
        self._pages.append(np.fromiter(inodes, np.uint64))

    def close(self) -> None:
        """All have been added."""
        together = np.concatenate(self._pages) if self._pages else np.empty(0, np.uint64)
        self._pages = []
        self._inodes, self._counts = np.unique(together, return_counts=True)

    def of(self, inodes: Sequence[int]) -> NDArray[np.int64]:
        wanted = np.asarray(inodes, np.uint64)
        if not len(self._inodes):
            return np.zeros(len(wanted), np.int64)
        places = np.minimum(np.searchsorted(self._inodes, wanted), len(self._inodes) - 1)
        return np.where(self._inodes[places] == wanted, self._counts[places], 0)


class ParentLinks:
    """Which directory lies in which."""

    def __init__(self) -> None:
        self._pairs: list[tuple[Numbers, Numbers]] = []

    def add(self, directories: Sequence[int], parents: Sequence[int]) -> None:
        self._pairs.append((np.asarray(directories, np.uint64), np.asarray(parents, np.uint64)))

    def cycles(self) -> list[int]:
        """One directory of every loop.

        Every directory takes the step up at once, then steps of double length. Whoever has not come to an end after as
        many steps as there are directories is in a loop, or below one.
        """
        if not self._pairs:
            return []
        directories = np.concatenate([pair[0] for pair in self._pairs])
        order = np.argsort(directories)
        directories = directories[order]
        parents = np.concatenate([pair[1] for pair in self._pairs])[order]
        up = np.minimum(np.searchsorted(directories, parents), len(directories) - 1)
        here = np.arange(len(directories))
        ends = (directories[up] != parents) | (directories == ROOT)  # there, or in something that is not known
        up = np.where(ends, here, up)
        far = up
        for _ in range(len(directories).bit_length()):
            far = far[far]
        lost = np.unique(far[~ends[far]])  # all on loops
        found: list[int] = []
        seen: set[int] = set()
        for start in lost.tolist():
            at, cycle = int(start), set[int]()
            while at not in seen and at not in cycle:
                cycle.add(at)
                at = int(up[at])
            if at in cycle:
                found.append(int(directories[min(cycle)]))
            seen |= cycle
        return found
