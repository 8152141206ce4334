"""Rules of the state machine about names: making, removing, renaming, looking."""

import os
import stat

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from tests.harness.differential_trees import DATA, DRIVERS, MODES, ODD_NAMES, PATHS, TOPS, TwoTrees
from tests.harness.fs_drivers import EXCHANGE, NOREPLACE, Driver


class NamesRules(TwoTrees):
    @initialize(driver=DRIVERS)
    def begin(self, driver: str) -> None:
        """So that calls find something from the first step on."""

        def make(tree: Driver) -> None:
            for directory in ("a", "a/a", "b"):
                tree.make_directory(directory, 0o755)
            tree.write("a/b", b"content")
            tree.write("c", b"more content")

        self.same(driver, make)

    @rule(driver=DRIVERS, path=PATHS, mode=MODES)
    def make_directory(self, driver: str, path: str, mode: int) -> None:
        self.same(driver, lambda tree: tree.make_directory(path, mode))

    @rule(driver=DRIVERS, path=PATHS)
    def make_directories(self, driver: str, path: str) -> None:
        self.same(driver, lambda tree: tree.make_directories(path))

    @rule(driver=DRIVERS, path=PATHS, mode=MODES)
    def make_file(self, driver: str, path: str, mode: int) -> None:
        self.same(driver, lambda tree: tree.make_file(path, mode))

    @rule(driver=DRIVERS, top=TOPS, name=ODD_NAMES)
    def make_odd_name(self, driver: str, top: str, name: str) -> None:
        self.same(driver, lambda tree: tree.make_file(f"{top}/{name}", 0o644), places=2)

    @rule(driver=DRIVERS, path=PATHS, kind=st.sampled_from((stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFREG)), mode=MODES)
    def make_node(self, driver: str, path: str, kind: int, mode: int) -> None:
        self.same(driver, lambda tree: tree.make_node(path, kind | mode))

    @rule(driver=DRIVERS, path=PATHS)
    def remove_file(self, driver: str, path: str) -> None:
        self.same(driver, lambda tree: tree.remove_file(path))

    @rule(driver=DRIVERS, path=PATHS)
    def remove_directory(self, driver: str, path: str) -> None:
        self.same(driver, lambda tree: tree.remove_directory(path))

    @rule(driver=DRIVERS, path=PATHS)
    def remove_a_tree(self, driver: str, path: str) -> None:
        self.remove_tree(driver, path)

    @rule(driver=DRIVERS, old=PATHS, new=PATHS)
    def link(self, driver: str, old: str, new: str) -> None:
        self.same(driver, lambda tree: tree.link(old, new), places=2)

    @rule(driver=DRIVERS, content=st.one_of(PATHS, st.just("."), st.just("n" * 4095)), path=PATHS)
    def symlink(self, driver: str, content: str, path: str) -> None:
        self.same(driver, lambda tree: tree.symlink(content, path))

    @rule(driver=DRIVERS, path=PATHS)
    def readlink(self, driver: str, path: str) -> None:
        self.same(driver, lambda tree: tree.readlink(path))

    @rule(driver=DRIVERS, old=PATHS, new=PATHS)
    def rename(self, driver: str, old: str, new: str) -> None:
        self.same(driver, lambda tree: tree.rename(old, new, 0), places=2)

    @rule(driver=DRIVERS, old=PATHS, new=PATHS)
    def rename_without_replacing(self, driver: str, old: str, new: str) -> None:
        self.same(driver, lambda tree: tree.rename(old, new, NOREPLACE), places=2)

    @rule(driver=DRIVERS, old=PATHS, new=PATHS)
    def exchange(self, driver: str, old: str, new: str) -> None:
        self.same(driver, lambda tree: tree.rename(old, new, EXCHANGE), places=2)

    @rule(driver=DRIVERS, path=PATHS, data=DATA)
    def replace_file(self, driver: str, path: str, data: bytes) -> None:
        """As editors save: a new file takes the name of the old one."""

        def replace(tree: Driver) -> None:
            tree.write("new", data)
            try:
                tree.rename("new", path, 0)
            except OSError:
                tree.remove_file("new")
                raise

        self.same(driver, replace)

    @rule(driver=DRIVERS, path=st.one_of(PATHS, st.just(".")))
    def list_names(self, driver: str, path: str) -> None:
        self.same(driver, lambda tree: tree.names(path))

    @rule(driver=DRIVERS, path=st.one_of(TOPS, st.just(".")))
    def walk(self, driver: str, path: str) -> None:
        self.same(driver, lambda tree: tree.walk(path))

    @rule(driver=DRIVERS, path=PATHS, follow=st.booleans())
    def stat(self, driver: str, path: str, follow: bool) -> None:
        self.same(driver, lambda tree: tree.stat(path, follow))

    @rule(driver=DRIVERS, paths=st.lists(PATHS, max_size=6))
    def stat_many(self, driver: str, paths: list[str]) -> None:
        self.same(driver, lambda tree: tree.stat_many(paths))

    @rule(driver=DRIVERS, path=PATHS, wanted=st.sampled_from((os.R_OK, os.W_OK, os.X_OK, os.R_OK | os.X_OK)))
    def access(self, driver: str, path: str, wanted: int) -> None:
        self.same(driver, lambda tree: tree.access(path, wanted))

    @rule(driver=DRIVERS)
    def look_at_everything(self, driver: str) -> None:
        self.compare(driver)
