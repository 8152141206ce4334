import pytest
from threefs_fuse.protocol import Feature
from threefs_mount import mountpoints
from threefs_mount.mount_process import FEATURES, make_room
from threefs_mount.mountpoints import Mount

from threefs.errors import InvalidArgument

_WRITEBACK_CACHE = 1 << 16


def test_the_kernel_neither_caches_writes_nor_keeps_locks() -> None:
    """Else it would believe its own lengths, and other machines would not see the locks."""
    assert not FEATURES & _WRITEBACK_CACHE
    assert FEATURES & Feature.POSIX_LOCKS and FEATURES & Feature.FLOCK_LOCKS


class Places:
    """The mounts at one path: whether the process of each has ended."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *dead: bool) -> None:
        self.dead, self.said, self.left = [*dead], list[str](), list[int]()
        monkeypatch.setattr(mountpoints, "find", lambda point: Mount(point, "", "0:1", 0) if self.dead else None)
        monkeypatch.setattr(mountpoints, "is_dead", lambda point: self.dead[-1:] == [True])
        monkeypatch.setattr(mountpoints, "unmount", lambda point, lazy: self.dead.pop())

    def replaced(self) -> None:
        self.said.append("replaced")
        self.left.append(len(self.dead))


def test_a_dead_mount_is_replaced_unless_somebody_has_unmounted_it(monkeypatch: pytest.MonkeyPatch) -> None:
    places = Places(monkeypatch, True)
    assert make_room("/", places.replaced) and places.said == ["replaced"] and not places.dead
    assert places.left == [1], "whoever is killed in between is started again"
    assert not make_room("/", places.replaced), "there is none any more"
    assert make_room("/", None) and places.said == ["replaced"]


def test_nothing_is_mounted_on_a_mount_that_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody has mounted it by hand, while the next process of a supervised mount connected."""
    places = Places(monkeypatch, False)
    for replaced in (places.replaced, None):
        with pytest.raises(InvalidArgument, match="mounted at / already"):
            make_room("/", replaced)
    assert not places.said
