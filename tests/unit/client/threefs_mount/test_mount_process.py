from threefs_fuse.protocol import Feature
from threefs_mount.mount_process import FEATURES

_WRITEBACK_CACHE = 1 << 16


def test_the_kernel_neither_caches_writes_nor_keeps_locks() -> None:
    """Else it would believe its own lengths, and other machines would not see the locks."""
    assert not FEATURES & _WRITEBACK_CACHE
    assert FEATURES & Feature.POSIX_LOCKS and FEATURES & Feature.FLOCK_LOCKS
