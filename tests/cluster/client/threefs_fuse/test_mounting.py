import os
import shutil
from pathlib import Path

import pytest
from threefs_fuse import mounting
from threefs_fuse.mounting import MountRequest

from tests.harness.mounts import need_mounts


def test_privileges_are_off_unless_asked_for() -> None:
    assert mounting.flags(()) == 2 | 4
    assert mounting.flags(("suid", "dev", "ro")) == 1
    assert mounting.flags(("ro", "rw", "noexec")) == 2 | 4 | 8


def test_mounted_and_unmounted(tmp_path: Path) -> None:
    need_mounts()
    fd = mounting.mount(MountRequest(str(tmp_path), "some:where,else", "tried", ("ro",)))
    shown = next(line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(tmp_path) in line)
    assert " fuse.tried some:where,else ro" in shown and "nosuid,nodev" in shown
    mounting.unmount(str(tmp_path))
    os.close(fd)
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()


def test_the_helper_mounts_for_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need_mounts()
    if shutil.which("fusermount3") is None:
        pytest.skip("fusermount3 is not installed")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    fd = mounting.mount(MountRequest(str(tmp_path), "some:where,else", "tried", ("ro",)))
    try:
        shown = next(line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(tmp_path) in line)
        assert " fuse.tried some:where,else ro" in shown
    finally:
        mounting.unmount(str(tmp_path))
        os.close(fd)
    with pytest.raises(OSError, match="fusermount3"):
        mounting.mount(MountRequest(str(tmp_path / "missing"), "x", "tried"))


def test_mount_points_that_are_refused(tmp_path: Path) -> None:
    need_mounts()
    with pytest.raises(OSError):
        mounting.mount(MountRequest(str(tmp_path / "missing"), "x", "tried"))
    with pytest.raises(OSError):
        mounting.unmount(str(tmp_path))
