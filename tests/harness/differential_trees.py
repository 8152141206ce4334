"""What a state machine of the file system knows: a tree of threefs, a local tree that must be the same, open files."""

import contextlib
import functools
import inspect
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.errors import HypothesisException
from hypothesis.stateful import RuleBasedStateMachine
from threefs_client import AsyncFileSystem

from tests.harness.client_driver import ClientDriver, run
from tests.harness.cluster import LocalCluster
from tests.harness.fs_drivers import LONG_AGO_NS, Driver, KernelDriver, KernelFile, OpenedFile, Outcome, Tree, outcome
from tests.harness.mounts import Mount

CHUNK_BYTES = 1 << 16
CLIENT, MOUNT, SECOND = "client", "mount", "second mount"
USER = 1001
_TRIES, _PAUSE_S = 3000, 0.02
_NAMES = ("a", "b", "c", "d")

DRIVERS = st.sampled_from((MOUNT, MOUNT, CLIENT, CLIENT, SECOND))  # changes to the last one cost time
TOPS = st.sampled_from(_NAMES)
PATHS = st.one_of(TOPS, TOPS, st.tuples(TOPS, TOPS).map("/".join), st.tuples(TOPS, TOPS, TOPS).map("/".join))
ODD_NAMES = st.sampled_from(("é", "x" * 255, "x" * 256, "a b\n", "-", "..a", "\udcff"))
MODES = st.sampled_from((0o000, 0o400, 0o600, 0o644, 0o666, 0o755, 0o777, 0o2755, 0o4755, 0o6777))
OFFSETS = st.sampled_from((0, 1, 100, 4095, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 5, 3 * CHUNK_BYTES))
SIZES = st.sampled_from((0, 1, 10, 4096, 5000, CHUNK_BYTES, CHUNK_BYTES + 1, 2 * CHUNK_BYTES + 77))
DATA = st.builds(lambda seed, size: (b"%c%d|" % (97 + seed, size) * (size // 3 + 1))[:size], st.integers(0, 25), SIZES)
XATTRS = st.sampled_from(("user.a", "user.b", "user.long" + "n" * 200))


@dataclass
class World:
    """What all examples share."""

    cluster: LocalCluster
    mount: Mount | None
    fs: AsyncFileSystem
    local: Path
    second: Mount | None = None
    second_s: float = 0.0  # after that time it shows what was changed elsewhere
    alone: bool = False  # everything goes through the mount
    examples: int = 0
    fault: str = ""  # what happens once in each example
    failures: list[str] = field(default_factory=list)  # each with the calls before it: the next try may go well


@dataclass(eq=False)
class Opened:
    """A file that is open in both trees."""

    driver: str
    theirs: OpenedFile
    mine: KernelFile
    mode: str
    dirty: bool = False
    locked: bool = False

    @property
    def writable(self) -> bool:
        return self.mode != "rb"

    @property
    def readable(self) -> bool:
        return self.mode == "rb" or "+" in self.mode


class TwoTrees(RuleBasedStateMachine):
    world: World

    def __init__(self) -> None:
        super().__init__()
        self.world.examples += 1
        self.top = f"example-{self.world.examples}"
        (self.world.local / self.top).mkdir()
        run(self.world.fs.mkdir(f"/{self.top}"))
        run(self.world.fs.set_layout(f"/{self.top}", chunk_bytes=CHUNK_BYTES, stripe=3))
        self.local = KernelDriver(self.world.local / self.top)
        self.client = ClientDriver(self.world.fs, f"/{self.top}")
        self.mounted: KernelDriver | None = None
        self.second = None if self.world.second is None else KernelDriver(self.world.second.point / self.top)
        self.last = CLIENT  # through which the last call went
        self.opened: list[Opened] = []
        self.story: list[str] = []  # the calls
        self.unsynced: dict[int, list[bytes]] = {}  # of local inodes: what each byte may be after a crash of the mount
        self.lost_locks: set[int] = set()  # local inodes that a mount had locked when it was killed
        self.open_mount()

    def open_mount(self) -> None:
        if self.world.mount is not None:
            self.mounted = KernelDriver(self.world.mount.point / self.top)

    def driver(self, name: str) -> Driver:
        """Also after the wait that a second mount asks for, to see what others have changed."""
        if self.name_of(name) == SECOND != self.last:
            time.sleep(self.world.second_s)
        self.last = self.name_of(name)
        return self.at_once(name)

    def at_once(self, name: str) -> Driver:
        drivers = {CLIENT: self.client, MOUNT: self.mounted, SECOND: self.second}
        found = drivers[self.name_of(name)]
        assert found is not None
        return found

    def name_of(self, driver: str) -> str:
        """The client stands for all, where nothing can be mounted; one mount for two."""
        if self.mounted is None:
            return CLIENT
        return MOUNT if self.world.alone or (driver == SECOND and self.second is None) else driver

    # ---- one call, both trees ----

    def same(self, driver: str, call: Callable[[Driver], Any], *, uid: int = 0, places: int = 1) -> Outcome:
        """Both trees must answer alike. Of two places, either may be told to be wrong first: POSIX leaves that open."""
        self.settle(driver)
        self.tell(driver, call)
        expected = _outcome(self.local, call, uid)
        got = _outcome(self.driver(driver), call, uid)
        self.note_versions()
        if places > 1 and self.name_of(driver) == CLIENT and got.error and expected.error:
            return expected
        assert got == expected, f"{driver}: {got}; a local directory: {expected}"
        return expected

    def tell(self, driver: str, call: Callable[..., Any]) -> None:
        """For the story of a failure."""
        words = {}
        while isinstance(call, functools.partial):
            words.update(call.keywords)
            call = call.func
        if inspect.isfunction(call):  # an operator.methodcaller shows itself
            words.update(inspect.getclosurevars(call).nonlocals)
        shown = ", ".join(f"{name}={word!r}"[:60] for name, word in words.items() if name != "self")
        self.story.append(
            f"{time.monotonic():.3f} {self.name_of(driver)}: {getattr(call, '__qualname__', call)} {shown}"
        )

    def settle(self, driver: str, but: Opened | None = None) -> None:
        """What others are to see must have been synced. On one mount all see each other at once."""
        name = self.name_of(driver)
        for one in self.opened:
            if one.dirty and one is not but and (one.driver != name or name == CLIENT):
                self.sync(one)

    def sync(self, one: Opened) -> None:
        self.driver(one.driver)
        one.theirs.sync()
        one.dirty = False
        self.forget_versions(one)

    def note_versions(self) -> None:
        """Of what need not be durable yet, each byte may be as it is now or as it was."""
        for one in self.opened:
            if one.dirty:
                content, versions = content_of(one.mine), self.unsynced[one.mine.inode()]
                if content != versions[-1]:
                    versions.append(content)

    def forget_versions(self, one: Opened) -> None:
        inode = one.mine.inode()
        if not any(other.dirty and other.mine.inode() == inode for other in self.opened):
            self.unsynced.pop(inode, None)

    def same_file(self, one: Opened, call: Callable[[OpenedFile], Any]) -> Outcome:
        """The same for a call on an open file."""
        self.settle(one.driver, one)
        self.driver(one.driver)
        self.tell(one.driver, call)
        expected = outcome(lambda: call(one.mine))
        got = outcome(lambda: call(one.theirs))
        assert got == expected, f"{one.driver}, an open file ({one.mode}): {got}; a local one: {expected}"
        return expected

    def change_file(self, one: Opened, call: Callable[[OpenedFile], Any]) -> None:
        """A call that changes the content, and need not be durable yet."""
        before = content_of(one.mine)
        if self.same_file(one, call).error == "":
            one.dirty = True
            self.unsynced.setdefault(one.mine.inode(), [before])
            self.note_versions()

    def close_file(self, one: Opened) -> None:
        self.opened.remove(one)
        self.driver(one.driver)
        one.theirs.close()
        self.forget_versions(one)
        one.mine.close()

    def drop(self, one: Opened) -> None:
        """Forget an open file of a mount that is dead."""
        self.opened.remove(one)
        one.mine.close()
        with contextlib.suppress(OSError):
            one.theirs.close()

    # ---- all of both trees ----

    def compare(self, driver: str) -> None:
        self.settle(driver)
        self.story.append(f"{time.monotonic():.3f} {self.name_of(driver)}: compare")
        expected, got = self.local.tree(), self.driver(driver).tree()
        assert got == expected, f"{driver}:\n" + differences(got, expected)

    def remove_tree(self, driver: str, path: str) -> None:
        linked = any(found.shown.nlink > 1 for found in self.local.tree().values())  # the path may lead through a link
        removed = self.same(driver, lambda tree: tree.remove_tree(path))
        if linked and not removed.error and self.name_of(driver) == CLIENT:
            self.wait_until_same()

    def wait_until_same(self) -> None:
        """A tree that the client removes goes at once; other names of what was in it are counted a little later."""
        expected = self.local.tree()
        self.driver(CLIENT)
        for _ in range(_TRIES):
            if self.client.tree() == expected:
                return
            time.sleep(_PAUSE_S)
        self.compare(CLIENT)

    def adopt_after_crash(self, unsynced: dict[int, list[bytes]]) -> None:
        """The mount was killed: of files with bytes that were not synced, take over what is left, if it may be so."""
        paths = {self.world.local / self.top / path: path for path in self.local.tree()}
        by_inode = {found.lstat().st_ino: path for found, path in paths.items()}
        for inode, versions in unsynced.items():
            path = by_inode.get(inode)
            if path is None:
                continue
            left = self.client.read(path)
            assert possible(left, versions), f"{path} has bytes after a crash that were never written"
            self.client.truncate(path, len(left))  # what the dead mount wrote behind it goes with that
            (self.world.local / self.top / path).write_bytes(left)
            for each in (self.local, self.client):
                each.utime(path, LONG_AGO_NS)

    def teardown(self) -> None:
        self.note_failure()
        try:
            for one in list(self.opened):
                self.close_file(one)
            for driver in {self.name_of(each) for each in (MOUNT, SECOND, CLIENT)}:
                self.compare(driver)
            assert self.client.tree() == self.local.tree()
        except Exception:
            self.note_failure()
            raise
        finally:
            self.abandon()

    def note_failure(self) -> None:
        """Of the rule, or of the end, that is just failing."""
        error = sys.exception()
        if isinstance(error, Exception) and not isinstance(error, HypothesisException):
            self.world.failures.append("\n".join([*self.story, *traceback.format_exception(error)]))

    def abandon(self) -> None:
        """Leave nothing open, however the example ended."""
        for one in list(self.opened):
            self.drop(one)
        self.local.leave()
        for mounted in (self.mounted, self.second):
            if mounted is not None:
                mounted.leave()
        run(self.world.fs.remove(f"/{self.top}", recursive=True))


def _outcome(driver: Driver, call: Callable[[Driver], Any], uid: int) -> Outcome:
    if not uid:
        return outcome(lambda: call(driver))
    with driver.acting_as(uid):
        return outcome(lambda: call(driver))


def content_of(file: KernelFile) -> bytes:
    return Path(f"/proc/self/fd/{file.number}").read_bytes()


def possible(left: bytes, versions: list[bytes]) -> bool:
    """Each byte is that of one of the versions, or 0 where that is shorter."""
    width = max(len(left), *map(len, versions))
    padded = [version.ljust(width, b"\0") for version in versions]
    if not min(map(len, versions)) <= len(left) <= max(map(len, versions)):
        return False
    return all(byte in {version[at] for version in padded} or byte == 0 for at, byte in enumerate(left))


def differences(got: Tree, expected: Tree) -> str:
    lines = []
    for path in sorted(got.keys() | expected.keys()):
        one, other = got.get(path), expected.get(path)
        if one != other:
            lines.append(f"  {path}: {_brief(one)}; locally {_brief(other)}")
    return "\n".join(lines)


def _brief(found: Any) -> str:
    if found is None:
        return "is not there"
    text = f"{found.shown} same as {found.same_as} xattrs {found.xattrs}"
    return f"{text} content {found.content[:40]!r}.. {hash(found.content)}"
