"""Rules of the state machine about names: making, removing, renaming, looking."""

import os
import stat

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from tests.harness.doors import EXCHANGE, NOREPLACE, Door
from tests.harness.two_trees import DATA, DOORS, MODES, ODD_NAMES, PATHS, TOPS, TwoTrees


class NamesRules(TwoTrees):
    @initialize(door=DOORS)
    def begin(self, door: str) -> None:
        """So that calls find something from the first step on."""

        def make(tree: Door) -> None:
            for directory in ("a", "a/a", "b"):
                tree.make_directory(directory, 0o755)
            tree.write("a/b", b"content")
            tree.write("c", b"more content")

        self.same(door, make)

    @rule(door=DOORS, path=PATHS, mode=MODES)
    def make_directory(self, door: str, path: str, mode: int) -> None:
        self.same(door, lambda tree: tree.make_directory(path, mode))

    @rule(door=DOORS, path=PATHS)
    def make_directories(self, door: str, path: str) -> None:
        self.same(door, lambda tree: tree.make_directories(path))

    @rule(door=DOORS, path=PATHS, mode=MODES)
    def make_file(self, door: str, path: str, mode: int) -> None:
        self.same(door, lambda tree: tree.make_file(path, mode))

    @rule(door=DOORS, top=TOPS, name=ODD_NAMES)
    def make_odd_name(self, door: str, top: str, name: str) -> None:
        self.same(door, lambda tree: tree.make_file(f"{top}/{name}", 0o644), places=2)

    @rule(door=DOORS, path=PATHS, kind=st.sampled_from((stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFREG)), mode=MODES)
    def make_node(self, door: str, path: str, kind: int, mode: int) -> None:
        self.same(door, lambda tree: tree.make_node(path, kind | mode))

    @rule(door=DOORS, path=PATHS)
    def remove_file(self, door: str, path: str) -> None:
        self.same(door, lambda tree: tree.remove_file(path))

    @rule(door=DOORS, path=PATHS)
    def remove_directory(self, door: str, path: str) -> None:
        self.same(door, lambda tree: tree.remove_directory(path))

    @rule(door=DOORS, path=PATHS)
    def remove_a_tree(self, door: str, path: str) -> None:
        self.remove_tree(door, path)

    @rule(door=DOORS, old=PATHS, new=PATHS)
    def link(self, door: str, old: str, new: str) -> None:
        self.same(door, lambda tree: tree.link(old, new), places=2)

    @rule(door=DOORS, content=st.one_of(PATHS, st.just("."), st.just("n" * 4095)), path=PATHS)
    def symlink(self, door: str, content: str, path: str) -> None:
        self.same(door, lambda tree: tree.symlink(content, path))

    @rule(door=DOORS, path=PATHS)
    def readlink(self, door: str, path: str) -> None:
        self.same(door, lambda tree: tree.readlink(path))

    @rule(door=DOORS, old=PATHS, new=PATHS)
    def rename(self, door: str, old: str, new: str) -> None:
        self.same(door, lambda tree: tree.rename(old, new, 0), places=2)

    @rule(door=DOORS, old=PATHS, new=PATHS)
    def rename_without_replacing(self, door: str, old: str, new: str) -> None:
        self.same(door, lambda tree: tree.rename(old, new, NOREPLACE), places=2)

    @rule(door=DOORS, old=PATHS, new=PATHS)
    def exchange(self, door: str, old: str, new: str) -> None:
        self.same(door, lambda tree: tree.rename(old, new, EXCHANGE), places=2)

    @rule(door=DOORS, path=PATHS, data=DATA)
    def replace_file(self, door: str, path: str, data: bytes) -> None:
        """As editors save: a new file takes the name of the old one."""

        def replace(tree: Door) -> None:
            tree.write("new", data)
            try:
                tree.rename("new", path, 0)
            except OSError:
                tree.remove_file("new")
                raise

        self.same(door, replace)

    @rule(door=DOORS, path=st.one_of(PATHS, st.just(".")))
    def list_names(self, door: str, path: str) -> None:
        self.same(door, lambda tree: tree.names(path))

    @rule(door=DOORS, path=st.one_of(TOPS, st.just(".")))
    def walk(self, door: str, path: str) -> None:
        self.same(door, lambda tree: tree.walk(path))

    @rule(door=DOORS, path=PATHS, follow=st.booleans())
    def stat(self, door: str, path: str, follow: bool) -> None:
        self.same(door, lambda tree: tree.stat(path, follow))

    @rule(door=DOORS, paths=st.lists(PATHS, max_size=6))
    def stat_many(self, door: str, paths: list[str]) -> None:
        self.same(door, lambda tree: tree.stat_many(paths))

    @rule(door=DOORS, path=PATHS, wanted=st.sampled_from((os.R_OK, os.W_OK, os.X_OK, os.R_OK | os.X_OK)))
    def access(self, door: str, path: str, wanted: int) -> None:
        self.same(door, lambda tree: tree.access(path, wanted))

    @rule(door=DOORS)
    def look_at_everything(self, door: str) -> None:
        self.compare(door)
