"""Rules of the state machine about copies, files without names, and many names in one call."""

import os
from functools import partial
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.harness.client_driver import run
from tests.harness.differential_trees import CLIENT, DRIVERS, MODES, OFFSETS, PATHS, SIZES, Opened
from tests.harness.fs_drivers import KernelFile, outcome
from tests.harness.machine_content import MAX_OPEN, SLOTS, ContentRules

_DIRECTORIES = st.one_of(PATHS, st.just("."))
_SEVERAL = st.lists(st.sampled_from(["a", "b", "c", "d", *(f"n{number}" for number in range(9))]), unique=True)


class CopiesRules(ContentRules):
    @precondition(lambda self: self.opened)
    @rule(slot=SLOTS, other=SLOTS, offset=OFFSETS, at=OFFSETS, size=SIZES)
    def copy_range(self, slot: int, other: int, offset: int, at: int, size: int) -> None:
        source, target = self.choose(slot), self.choose(other)
        if source.driver == target.driver and source.readable and target.mode in ("r+b", "wb", "w+b", "xb"):
            self.settle(target.driver, target)
            self.settle(source.driver, source)

            def copy(file: Any) -> Any:
                old: Any = source.mine if file is target.mine else source.theirs
                return old.copy_to(file, offset, at, size)

            self.change_file(target, copy)

    @precondition(lambda self: not self.world.alone)
    @rule(old=PATHS, new=PATHS)
    def copy(self, old: str, new: str) -> None:
        """The client alone can do that, and a mount that remembers sees it later. Locally it is a new file that takes
        the name."""
        self.settle(CLIENT)
        with self.local.inside():
            above = os.path.dirname(new) or "."
            if not os.path.isfile(old) or not os.path.isdir(above) or os.path.isdir(new):
                return
            content, mode = Path(old).read_bytes(), os.stat(old).st_mode & 0o777
            made = os.open(f"{above}/.new", os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            os.write(made, content)
            os.close(made)
            os.replace(f"{above}/.new", new)
        self.driver(CLIENT)
        assert run(self.world.fs.copy(f"/{self.top}/{old}", f"/{self.top}/{new}")) == len(content)
        self.same(CLIENT, lambda tree: tree.read(new))

    @precondition(lambda self: len(self.opened) < MAX_OPEN)
    @rule(driver=DRIVERS, directory=_DIRECTORIES, mode=MODES)
    def open_unnamed(self, driver: str, directory: str, mode: int) -> None:
        mine = outcome(lambda: self.local.open_unnamed(directory, mode))
        theirs = outcome(lambda: self.driver(driver).open_unnamed(directory, mode))
        if mine.error or theirs.error:
            assert theirs.error == mine.error, f"{driver}: {theirs}; a local directory: {mine}"
        else:
            self.opened.append(Opened(self.name_of(driver), theirs.value, mine.value, "w+b"))

    @precondition(lambda self: self.opened)
    @rule(slot=SLOTS, path=PATHS)
    def link_open_file(self, slot: int, path: str) -> None:
        """One without a name, or with one, or whose last one is gone."""
        one = self.choose(slot)
        self.settle(one.driver, one)
        driver = self.driver(one.driver)
        expected = outcome(lambda: self.local.link_file(one.mine, path))
        got = outcome(lambda: driver.link_file(one.theirs, path))
        assert bool(got.error) == bool(expected.error), f"{one.driver}: {got}; a local directory: {expected}"
        if one.driver != CLIENT:
            assert got == expected

    @rule(driver=DRIVERS, directory=_DIRECTORIES, names=_SEVERAL)
    def make_files(self, driver: str, directory: str, names: list[str]) -> None:
        self.same(driver, lambda tree: tree.make_files([f"{directory}/{name}" for name in names]))

    @rule(driver=DRIVERS, directory=_DIRECTORIES, names=_SEVERAL)
    def remove_all(self, driver: str, directory: str, names: list[str]) -> None:
        """Not where it leads through a link that goes with it: their order is open."""
        with self.local.inside():
            if os.path.realpath(directory) != os.path.normpath(os.path.join(os.path.realpath("."), directory)):
                return
        self.same(driver, lambda tree: tree.remove_all([f"{directory}/{name}" for name in names]))

    @precondition(lambda self: self.opened)
    @rule(slot=SLOTS, kind=st.sampled_from((0, 1, 1, 2)), start=st.integers(0, 9), length=st.integers(0, 5))
    def lock_range_of_open_file(self, slot: int, kind: int, start: int, length: int) -> None:
        """Shared, exclusive, none. A client has no such locks, but those who use mounts do not see the difference."""
        one = self.choose(slot)
        if isinstance(one.theirs, KernelFile) and one.mine.inode() not in self.lost_locks:
            one.locked = one.locked or kind != 2
            self.same_file(one, partial(KernelFile.record_lock, kind=kind, start=start, length=length))
