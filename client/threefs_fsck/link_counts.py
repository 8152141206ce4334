"""Number of names of each inode, and parents of directories: 8 bytes of memory per entry, 16 per directory."""

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
        """Count, after the last `add` and before the first `of`."""
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
    """The parent of each directory."""

    def __init__(self) -> None:
        self._pairs: list[tuple[Numbers, Numbers]] = []

    def add(self, directories: Sequence[int], parents: Sequence[int]) -> None:
        self._pairs.append((np.asarray(directories, np.uint64), np.asarray(parents, np.uint64)))

    def cycles(self) -> list[int]:
        """One directory of every cycle.

        Pointer doubling: all directories go one step up, then two, then four. A directory that has reached neither the
        root nor an unknown parent after as many steps as there are directories is in a cycle or below one.
        """
        if not self._pairs:
            return []
        directories = np.concatenate([pair[0] for pair in self._pairs])
        order = np.argsort(directories)
        directories = directories[order]
        parents = np.concatenate([pair[1] for pair in self._pairs])[order]
        up = np.minimum(np.searchsorted(directories, parents), len(directories) - 1)
        here = np.arange(len(directories))
        ends = (directories[up] != parents) | (directories == ROOT)  # at the root, or below an unknown parent
        up = np.where(ends, here, up)
        far = up
        for _ in range(len(directories).bit_length()):
            far = far[far]
        lost = np.unique(far[~ends[far]])  # each of them is on a cycle
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
