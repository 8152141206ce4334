"""Pages of tables in memory, least recently used ones out first. Pure: no I/O here."""

from collections import OrderedDict
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

_VALUE_BYTES = 8


class PageCache:
    """A row of `values` is a decoded page."""

    def __init__(self, columns: int, pages: int, capacity_bytes: int) -> None:
        """For a dataset of `pages` pages. At least one page is kept."""
        self.capacity = max(1, min(pages, capacity_bytes // (columns * _VALUE_BYTES)))
        # The operating system gives memory to the rows that are in use only.
        self.values: NDArray[np.uint64] = np.empty((self.capacity, columns), np.uint64)
        self._rows: OrderedDict[int, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._rows)

    def missing(self, pages: Iterable[int]) -> list[int]:
        """Those that are not here. The others become the most recently used ones."""
        absent = []
        for page in pages:
            if page in self._rows:
                self._rows.move_to_end(page)
            else:
                absent.append(page)
        return absent

    def insert(self, pages: list[int], values: NDArray[np.uint64]) -> None:
        """Keep these decoded pages, or those of them that are not here. Together with the pages that are to stay they
        must fit.
        """
        try:
            for page, content in zip(pages, values, strict=True):
                if page not in self._rows:  # a second row for it would break the count of rows in use
                    row = len(self._rows) if len(self._rows) < self.capacity else self._rows.popitem(last=False)[1]
                    self.values[row] = content
                    self._rows[page] = row
        except BaseException:  # Ctrl-C, perhaps between a page that went and the one that takes its row
            self._rows.clear()
            raise

    def rows(self, pages: Iterable[int]) -> NDArray[np.intp]:
        """Where these pages are in `values`."""
        return np.array([self._rows[page] for page in pages], np.intp)
