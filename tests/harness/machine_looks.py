"""Rules of the state machine about looking at many names in a row, with changes in between.

A mount answers such looks from what it has fetched ahead. A directory of their own has enough names for that.
"""

from functools import partial
from typing import Protocol

from hypothesis import strategies as st
from hypothesis.stateful import rule
from threefs_mount.cache.delegation import CREATES_BEFORE_REQUEST

from tests.harness.differential_trees import CLIENT, DATA, DRIVERS, MODES, PATHS, SECOND, TOPS, TwoTrees
from tests.harness.fs_drivers import LONG_AGO_NS, Driver

_ROW, _BUSY = "row", "busy"
_ALL = [f"{_ROW}/f{number:02}" for number in range(24)]
_OWN = st.sampled_from(("own-0", "own-1"))  # files that nothing else touches


def _fill(tree: Driver) -> None:
    if tree.look_in_a_row([_ROW]) == [None]:
        tree.make_directory(_ROW, 0o755)
    for path in _ALL:
        if tree.look_in_a_row([path]) == [None]:
            tree.make_file(path, 0o644)


class _Change(Protocol):
    def __call__(self, tree: Driver, path: str) -> None: ...


_CHANGES: dict[str, _Change] = {
    "write": lambda tree, path: tree.write(path, path.encode() * 9),
    "append": lambda tree, path: tree.append(path, b"more"),
    "cut": lambda tree, path: tree.truncate(path, 5),
    "chmod": lambda tree, path: tree.chmod(path, 0o640),
    "utime": lambda tree, path: tree.utime(path, LONG_AGO_NS),
    "xattr": lambda tree, path: tree.setxattr(path, "user.a", b"value", 0),
    "remove": lambda tree, path: tree.remove_file(path),
    "replace": lambda tree, path: tree.rename(_ALL[0], path, 0),
    "move away": lambda tree, path: tree.rename(path, "a/moved", 0),
    "link": lambda tree, path: tree.link(path, "b/linked"),
    "make": lambda tree, path: tree.make_file(path, 0o600),
    "make directory": lambda tree, path: tree.make_directory(path, 0o700),
}
_CHANGE = st.tuples(st.sampled_from(_ALL), st.sampled_from(list(_CHANGES)))
_SOME_CHANGES = st.lists(_CHANGE, min_size=1, max_size=6, unique_by=lambda row: row[0])


class LooksRules(TwoTrees):
    def fill_row(self, driver: str) -> bool:
        """Whether it could be done: something else may have the name."""
        return not self.same(driver, _fill).error

    @rule(driver=DRIVERS, other=DRIVERS, changes=_SOME_CHANGES, first=st.integers(0, 20))
    def look_and_change(self, driver: str, other: str, changes: list[tuple[str, str]], first: int) -> None:
        """Looks at all; those that follow a change show it."""
        if not self.fill_row(other):
            return
        self.same(driver, lambda tree: tree.look_in_a_row(_ALL[:first]))
        for path, change in changes:
            self.same(other, partial(_CHANGES[change], path=path), places=2)
        self.same(driver, lambda tree: tree.look_in_a_row(_ALL[first:]))
        self.same(driver, lambda tree: tree.look_in_a_row(_ALL))

    @rule(driver=DRIVERS, changes=_SOME_CHANGES, plus=st.booleans())
    def list_and_change(self, driver: str, changes: list[tuple[str, str]], plus: bool) -> None:
        self.fill_row(driver)
        for path, change in changes:
            self.same(driver, lambda tree: tree.scan(_ROW) if plus else tree.names(_ROW))
            self.same(driver, partial(_CHANGES[change], path=path), places=2)
        self.same(driver, lambda tree: tree.names(_ROW) if plus else tree.scan(_ROW))

    @rule(driver=DRIVERS, path=PATHS)
    def scan(self, driver: str, path: str) -> None:
        self.same(driver, lambda tree: tree.scan(path))

    @rule(driver=DRIVERS, mode=MODES)
    def chmod_row(self, driver: str, mode: int) -> None:
        def chmod(tree: Driver) -> None:
            _fill(tree)
            for path in _ALL:
                tree.chmod(path, mode)

        self.same(driver, chmod)
        self.same(driver, lambda tree: tree.look_in_a_row(_ALL))

    @rule(driver=DRIVERS, name=TOPS)
    def move_row(self, driver: str, name: str) -> None:
        """What was known of names below goes with them."""
        self.fill_row(driver)
        self.same(driver, lambda tree: tree.look_in_a_row(_ALL))
        if not self.same(driver, lambda tree: tree.rename(_ROW, f"{name}/{_ROW}", 0), places=2).error:
            self.same(driver, lambda tree: tree.look_in_a_row(_ALL))
            self.same(driver, lambda tree: tree.scan(f"{name}/{_ROW}"))
            self.remove_tree(driver, f"{name}/{_ROW}")

    @rule(driver=DRIVERS, path=_OWN, data=DATA, append=st.booleans())
    def what_is_closed_is_there_at_the_next_open(self, driver: str, path: str, data: bytes, append: bool) -> None:
        """Whatever another mount remembers of it."""
        self.same(driver, lambda tree: tree.append(path, data) if append else tree.write(path, data))
        for other in (SECOND, CLIENT):
            assert self.at_once(other).read(path) == self.local.read(path)

    @rule(driver=DRIVERS, path=_OWN, data=DATA)
    def what_has_replaced_a_file_is_there_at_the_next_open(self, driver: str, path: str, data: bytes) -> None:
        def replace(tree: Driver) -> None:
            tree.write("new", data)
            tree.rename("new", path, 0)

        self.same(driver, replace)
        for other in (SECOND, CLIENT):
            assert self.at_once(other).read(path) == data

    @rule(driver=DRIVERS, other=DRIVERS, path=_OWN)
    def new_names_are_there_at_once(self, driver: str, other: str, path: str) -> None:
        if self.same(driver, lambda tree: tree.look_in_a_row([path])).value == [None]:
            self.same(other, lambda tree: tree.make_file(path, 0o644))
            found = self.at_once(driver).look_in_a_row([path, f"{path}-not"])
            assert found == self.local.look_in_a_row([path, f"{path}-not"])

    @rule(driver=DRIVERS, other=DRIVERS, rename=st.booleans())
    def new_names_are_there_at_once_where_somebody_else_makes_many(self, driver: str, other: str, rename: bool) -> None:
        """A mount asks for the delegation of such a directory."""

        def make(tree: Driver) -> None:
            tree.make_directory(_BUSY, 0o755)
            for number in range(CREATES_BEFORE_REQUEST + 4):
                tree.make_file(f"{_BUSY}/{number}", 0o644)
                if rename:
                    tree.rename(f"{_BUSY}/{number}", f"{_BUSY}/{number}-named", 0)

        if self.same(driver, make).error:
            return
        looks = [f"{_BUSY}/new", f"{_BUSY}/0", f"{_BUSY}/not"]
        self.at_once(driver).look_in_a_row(looks)
        self.same(other, lambda tree: tree.make_file(looks[0], 0o600))
        assert self.at_once(driver).look_in_a_row(looks) == self.local.look_in_a_row(looks)
        self.same(driver, lambda tree: tree.rename(looks[0], looks[2], 0))
        self.same(other, lambda tree: tree.make_file(looks[0], 0o600))
        assert self.at_once(driver).look_in_a_row(looks) == self.local.look_in_a_row(looks)
        self.remove_tree(driver, _BUSY)
