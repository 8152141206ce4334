import os
from pathlib import Path

import pytest
from threefs_mount import mountpoints
from threefs_mount.mountpoints import Mount

from threefs.errors import InvalidArgument, NotFound

INFO = (
    b"22 1 254:0 / / rw - ext4 /dev/vda rw\n"
    b"40 22 0:39 / /mnt/with\\040space rw,nosuid shared:1 - fuse.threefs threefs://a:1 rw,user_id=0\n"
    b"41 22 0:40 / /mnt/x rw - fuse.sshfs host: rw\n"
)


def test_the_text_of_the_kernel() -> None:
    assert mountpoints.parse(INFO) == [Mount("/mnt/with space", "threefs://a:1", "0:39")]


def test_a_place_is_named_without_looking_at_it(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    real = os.path.realpath(tmp_path)
    assert mountpoints.kernel_path(str(tmp_path / "link" / "x")) == f"{real}/real/x"
    assert mountpoints.kernel_path("/") == "/"


def test_only_directories_can_be_mounted_on(tmp_path: Path) -> None:
    assert mountpoints.check(str(tmp_path)) == os.path.realpath(tmp_path)
    with pytest.raises(InvalidArgument, match="not a directory"):
        mountpoints.check(str(tmp_path / "nowhere"))


def test_what_is_not_mounted_cannot_be_unmounted(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        mountpoints.unmount(str(tmp_path))
    assert mountpoints.servers(str(tmp_path)) == []
