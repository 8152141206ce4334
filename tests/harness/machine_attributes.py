"""Rules of the state machine about attributes and permissions."""

import os
import stat

from hypothesis import strategies as st
from hypothesis.stateful import rule

from tests.harness.doors import LONG_AGO_NS, Door
from tests.harness.two_trees import CLIENT, DATA, DOORS, MODES, PATHS, TOPS, USER, XATTRS, TwoTrees

VALUES = DATA.map(lambda data: data[:900])
IDS = st.sampled_from((-1, 0, USER, USER + 1))


class AttributesRules(TwoTrees):
    @rule(door=DOORS, path=PATHS, mode=MODES)
    def chmod(self, door: str, path: str, mode: int) -> None:
        self.same(door, lambda tree: tree.chmod(path, mode))

    def _leaves_owners(self, door: str, uid: int, gid: int) -> bool:
        """Linux takes set-user-id away even then; the client of the library changes nothing."""
        return self.name_of(door) == CLIENT and uid == gid == -1

    def _privileged(self, path: str) -> bool:
        """A file of which docs/posix.md tells that such a call takes its privileges away."""
        try:
            return bool(self.local.stat(path, True).mode & 0o6000)
        except OSError:
            return False

    @rule(door=DOORS, path=PATHS, uid=IDS, gid=IDS, follow=st.booleans())
    def chown(self, door: str, path: str, uid: int, gid: int, follow: bool) -> None:
        if not self._leaves_owners(door, uid, gid):
            self.same(door, lambda tree: tree.chown(path, uid, gid, follow))

    @rule(door=DOORS, path=PATHS, seconds=st.integers(-5, 5))
    def utime(self, door: str, path: str, seconds: int) -> None:
        """From then on its time must stay, or become that of a change: both are seen when all is looked at."""
        self.same(door, lambda tree: tree.utime(path, LONG_AGO_NS + seconds * 10**9 + 123_456_789))

    @rule(door=DOORS, path=PATHS)
    def touch(self, door: str, path: str) -> None:
        self.same(door, lambda tree: tree.touch(path))

    @rule(
        door=DOORS, path=PATHS, name=XATTRS, value=DATA.map(lambda data: data[:900]), flags=st.sampled_from((0, 1, 2))
    )
    def setxattr(self, door: str, path: str, name: str, value: bytes, flags: int) -> None:
        self.same(door, lambda tree: tree.setxattr(path, name, value, flags))

    @rule(door=DOORS, path=PATHS, name=XATTRS)
    def getxattr(self, door: str, path: str, name: str) -> None:
        self.same(door, lambda tree: tree.getxattr(path, name))

    @rule(door=DOORS, path=PATHS)
    def listxattr(self, door: str, path: str) -> None:
        self.same(door, lambda tree: tree.listxattr(path))

    @rule(door=DOORS, path=PATHS, name=XATTRS)
    def removexattr(self, door: str, path: str, name: str) -> None:
        self.same(door, lambda tree: tree.removexattr(path, name))

    # ---- as somebody else ----

    @rule(door=DOORS, path=PATHS, uid=IDS)
    def give_away(self, door: str, path: str, uid: int) -> None:
        self.same(door, lambda tree: tree.chown(path, USER, uid, True))

    @rule(door=DOORS, path=PATHS, mode=MODES)
    def chmod_as_user(self, door: str, path: str, mode: int) -> None:
        self.same(door, lambda tree: tree.chmod(path, mode), uid=USER)

    @rule(door=DOORS, path=PATHS, uid=IDS, gid=IDS)
    def chown_as_user(self, door: str, path: str, uid: int, gid: int) -> None:
        if not (uid == gid == -1 and (self.name_of(door) == CLIENT or self._privileged(path))):
            self.same(door, lambda tree: tree.chown(path, uid, gid, True), uid=USER)

    @rule(door=DOORS, path=PATHS)
    def touch_as_user(self, door: str, path: str) -> None:
        self.same(door, lambda tree: tree.touch(path), uid=USER)

    @rule(door=DOORS, path=PATHS)
    def utime_as_user(self, door: str, path: str) -> None:
        self.same(door, lambda tree: tree.utime(path, LONG_AGO_NS), uid=USER)

    @rule(door=DOORS, path=PATHS, mode=MODES)
    def make_directory_as_user(self, door: str, path: str, mode: int) -> None:
        self.same(door, lambda tree: tree.make_directory(path, mode), uid=USER)

    @rule(door=DOORS, path=PATHS, mode=MODES)
    def make_file_as_user(self, door: str, path: str, mode: int) -> None:
        self.same(door, lambda tree: tree.make_file(path, mode), uid=USER)

    @rule(door=DOORS, path=PATHS)
    def remove_as_user(self, door: str, path: str) -> None:
        self.same(door, lambda tree: tree.remove_file(path), uid=USER)

    @rule(door=DOORS, path=PATHS)
    def remove_directory_as_user(self, door: str, path: str) -> None:
        self.same(door, lambda tree: tree.remove_directory(path), uid=USER)

    @rule(door=DOORS, old=PATHS, new=PATHS)
    def rename_as_user(self, door: str, old: str, new: str) -> None:
        self.same(door, lambda tree: tree.rename(old, new, 0), uid=USER, places=2)

    @rule(door=DOORS, path=PATHS)
    def read_as_user(self, door: str, path: str) -> None:
        self.same(door, lambda tree: tree.read(path), uid=USER)

    @rule(door=DOORS, path=PATHS, data=DATA)
    def write_as_user(self, door: str, path: str, data: bytes) -> None:
        self.same(door, lambda tree: tree.write(path, data), uid=USER)

    @rule(door=DOORS, path=PATHS)
    def list_as_user(self, door: str, path: str) -> None:
        self.same(door, lambda tree: tree.names(path), uid=USER)

    @rule(door=DOORS, path=PATHS, wanted=st.sampled_from((os.R_OK, os.W_OK, os.X_OK, os.R_OK | os.W_OK)))
    def access_as_user(self, door: str, path: str, wanted: int) -> None:
        self.same(door, lambda tree: tree.access(path, wanted), uid=USER)

    @rule(door=DOORS, top=TOPS, owner=st.sampled_from((0, USER, USER + 1)))
    def remove_from_sticky_directory(self, door: str, top: str, owner: int) -> None:
        """Only the owner of a name or of the directory may remove it."""

        def prepare(tree: Door) -> None:
            tree.make_directory(f"{top}/sticky", stat.S_ISVTX | 0o777)
            tree.make_file(f"{top}/sticky/file", 0o666)
            tree.chown(f"{top}/sticky/file", owner, -1, False)

        if not self.same(door, prepare).error:
            self.same(door, lambda tree: tree.remove_file(f"{top}/sticky/file"), uid=USER)
            self.same(door, lambda tree: tree.remove_tree(f"{top}/sticky"))
