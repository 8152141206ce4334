from threefs_fuse.protocol import Feature
from threefs_mount.kernel.features import FEATURES

_WRITEBACK_CACHE = 1 << 16


def test_the_kernel_keeps_no_writes_and_looks_after_no_locks() -> None:
    """Lengths would be its own, and locks would end at this machine."""
    assert not FEATURES & _WRITEBACK_CACHE
    assert FEATURES & Feature.POSIX_LOCKS and FEATURES & Feature.FLOCK_LOCKS
