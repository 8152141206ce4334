"""Rules of the state machine about attributes and permissions."""

import os
import stat

from hypothesis import strategies as st
from hypothesis.stateful import rule

from tests.harness.differential_trees import CLIENT, DATA, DRIVERS, MODES, PATHS, TOPS, USER, XATTRS, TwoTrees
from tests.harness.fs_drivers import LONG_AGO_NS, Driver

VALUES = DATA.map(lambda data: data[:900])
IDS = st.sampled_from((-1, 0, USER, USER + 1))


class AttributesRules(TwoTrees):
    @rule(driver=DRIVERS, path=PATHS, mode=MODES)
    def chmod(self, driver: str, path: str, mode: int) -> None:
        self.same(driver, lambda tree: tree.chmod(path, mode))

    def _leaves_owners(self, driver: str, uid: int, gid: int) -> bool:
        """Linux takes set-user-id away even then; the client of the library changes nothing."""
        return self.name_of(driver) == CLIENT and uid == gid == -1

    def _privileged(self, path: str) -> bool:
        """A file of which docs/posix.md tells that such a call takes its privileges away."""
        try:
            return bool(self.local.stat(path, True).mode & 0o6000)
        except OSError:
            return False

    @rule(driver=DRIVERS, path=PATHS, uid=IDS, gid=IDS, follow=st.booleans())
    def chown(self, driver: str, path: str, uid: int, gid: int, follow: bool) -> None:
        if not self._leaves_owners(driver, uid, gid):
            self.same(driver, lambda tree: tree.chown(path, uid, gid, follow))

    @rule(driver=DRIVERS, path=PATHS, seconds=st.integers(-5, 5))
    def utime(self, driver: str, path: str, seconds: int) -> None:
        """From then on its time must stay, or become that of a change: both are seen when all is looked at."""
        self.same(driver, lambda tree: tree.utime(path, LONG_AGO_NS + seconds * 10**9 + 123_456_789))

    @rule(driver=DRIVERS, path=PATHS)
    def touch(self, driver: str, path: str) -> None:
        self.same(driver, lambda tree: tree.touch(path))

    @rule(
        driver=DRIVERS,
        path=PATHS,
        name=XATTRS,
        value=DATA.map(lambda data: data[:900]),
        flags=st.sampled_from((0, 1, 2)),
    )
    def setxattr(self, driver: str, path: str, name: str, value: bytes, flags: int) -> None:
        self.same(driver, lambda tree: tree.setxattr(path, name, value, flags))

    @rule(driver=DRIVERS, path=PATHS, name=XATTRS)
    def getxattr(self, driver: str, path: str, name: str) -> None:
        self.same(driver, lambda tree: tree.getxattr(path, name))

    @rule(driver=DRIVERS, path=PATHS)
    def listxattr(self, driver: str, path: str) -> None:
        self.same(driver, lambda tree: tree.listxattr(path))

    @rule(driver=DRIVERS, path=PATHS, name=XATTRS)
    def removexattr(self, driver: str, path: str, name: str) -> None:
        self.same(driver, lambda tree: tree.removexattr(path, name))

    # ---- as somebody else ----

    @rule(driver=DRIVERS, path=PATHS, uid=IDS)
    def give_away(self, driver: str, path: str, uid: int) -> None:
        self.same(driver, lambda tree: tree.chown(path, USER, uid, True))

    @rule(driver=DRIVERS, path=PATHS, mode=MODES)
    def chmod_as_user(self, driver: str, path: str, mode: int) -> None:
        self.same(driver, lambda tree: tree.chmod(path, mode), uid=USER)

    @rule(driver=DRIVERS, path=PATHS, uid=IDS, gid=IDS)
    def chown_as_user(self, driver: str, path: str, uid: int, gid: int) -> None:
        if not (uid == gid == -1 and (self.name_of(driver) == CLIENT or self._privileged(path))):
            self.same(driver, lambda tree: tree.chown(path, uid, gid, True), uid=USER)

    @rule(driver=DRIVERS, path=PATHS)
    def touch_as_user(self, driver: str, path: str) -> None:
        self.same(driver, lambda tree: tree.touch(path), uid=USER)

    @rule(driver=DRIVERS, path=PATHS)
    def utime_as_user(self, driver: str, path: str) -> None:
        self.same(driver, lambda tree: tree.utime(path, LONG_AGO_NS), uid=USER)

    @rule(driver=DRIVERS, path=PATHS, mode=MODES)
    def make_directory_as_user(self, driver: str, path: str, mode: int) -> None:
        self.same(driver, lambda tree: tree.make_directory(path, mode), uid=USER)

    @rule(driver=DRIVERS, path=PATHS, mode=MODES)
    def make_file_as_user(self, driver: str, path: str, mode: int) -> None:
        self.same(driver, lambda tree: tree.make_file(path, mode), uid=USER)

    @rule(driver=DRIVERS, path=PATHS)
    def remove_as_user(self, driver: str, path: str) -> None:
        self.same(driver, lambda tree: tree.remove_file(path), uid=USER)

    @rule(driver=DRIVERS, path=PATHS)
    def remove_directory_as_user(self, driver: str, path: str) -> None:
        self.same(driver, lambda tree: tree.remove_directory(path), uid=USER)

    @rule(driver=DRIVERS, old=PATHS, new=PATHS)
    def rename_as_user(self, driver: str, old: str, new: str) -> None:
        self.same(driver, lambda tree: tree.rename(old, new, 0), uid=USER, places=2)

    @rule(driver=DRIVERS, path=PATHS)
    def read_as_user(self, driver: str, path: str) -> None:
        self.same(driver, lambda tree: tree.read(path), uid=USER)

    @rule(driver=DRIVERS, path=PATHS, data=DATA)
    def write_as_user(self, driver: str, path: str, data: bytes) -> None:
        self.same(driver, lambda tree: tree.write(path, data), uid=USER)

    @rule(driver=DRIVERS, path=PATHS)
    def list_as_user(self, driver: str, path: str) -> None:
        self.same(driver, lambda tree: tree.names(path), uid=USER)

    @rule(driver=DRIVERS, path=PATHS, wanted=st.sampled_from((os.R_OK, os.W_OK, os.X_OK, os.R_OK | os.W_OK)))
    def access_as_user(self, driver: str, path: str, wanted: int) -> None:
        self.same(driver, lambda tree: tree.access(path, wanted), uid=USER)

    @rule(driver=DRIVERS, top=TOPS, owner=st.sampled_from((0, USER, USER + 1)))
    def remove_from_sticky_directory(self, driver: str, top: str, owner: int) -> None:
        """Only the owner of a name or of the directory may remove it."""

        def prepare(tree: Driver) -> None:
            tree.make_directory(f"{top}/sticky", stat.S_ISVTX | 0o777)
            tree.make_file(f"{top}/sticky/file", 0o666)
            tree.chown(f"{top}/sticky/file", owner, -1, False)

        if not self.same(driver, prepare).error:
            self.same(driver, lambda tree: tree.remove_file(f"{top}/sticky/file"), uid=USER)
            self.same(driver, lambda tree: tree.remove_tree(f"{top}/sticky"))
