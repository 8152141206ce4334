import os
import subprocess
import sys
from pathlib import Path

import pytest
from threefs_cli import mount_helper
from threefs_client.keyring import TOKEN_VARIABLE

from tests.harness.cluster import LocalCluster
from tests.harness.mounts import Mount, lacking
from threefs.errors import InvalidArgument


def test_a_line_of_fstab() -> None:
    words = ["threefs://a:1", "/mnt/data", "-o", "rw,_netdev,nofail,x-systemd.requires=a.service,cache=5,private", "-s"]
    assert mount_helper.arguments(words) == (
        ["threefs", "mount", "--address", "threefs://a:1", "--cache", "5", "--private", "-o", "rw", "--", "/mnt/data"]
    )


def test_to_mount_again_is_left_to_the_kernel() -> None:
    shown = "rw,nosuid,nodev,relatime,remount,ro,user_id=0,group_id=0,default_permissions,allow_other"  # by mount(8)
    command = ["mount", "--internal-only", "-o", "remount,rw,nosuid,nodev,ro", "--", "threefs://a:1", "/mnt/data"]
    assert mount_helper.arguments(["threefs://a:1", "/mnt/data", "-o", shown]) == command


def test_a_trial_does_nothing() -> None:
    assert mount_helper.arguments(["-fnv", "-t", "threefs", "a:1", "/mnt"]) is None


@pytest.mark.parametrize("words", [[], ["a:1"], ["a:1", "/mnt", "-o", "magic"], ["a:1", "/mnt", "-o", "cache="]])
def test_invalid_requests_are_refused(words: list[str]) -> None:
    with pytest.raises(InvalidArgument):
        mount_helper.arguments(words)


def test_the_secret_comes_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "")
    (tmp_path / "token").write_text("secret\n")
    mount_helper.arguments(["a:1", "/mnt", "-o", f"token_file={tmp_path}/token"])
    assert os.environ[TOKEN_VARIABLE] == "secret"


@pytest.mark.skipif(bool(lacking()), reason=lacking() or "it can be mounted here")
def test_mounting_says_nothing_and_can_be_repeated_with_other_flags(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Scripts take what mount(8) prints for an error, or compare it."""
    mount = Mount(cluster.address, tmp_path / "mnt")
    mount.point.mkdir()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["mount.threefs", cluster.address, str(mount.point), "-o", "rw"])
    with pytest.raises(SystemExit) as ended:
        mount_helper.main()
    assert not ended.value.code and os.path.ismount(mount.point)
    words = mount_helper.arguments([cluster.address, str(mount.point), "-o", "rw,remount,ro,user_id=0"])
    assert words is not None and subprocess.run(words).returncode == 0
    with pytest.raises(OSError, match="Read-only"):
        (mount.point / "mounting-says-nothing").touch()
    mount.umount()
    assert capfd.readouterr() == ("", "")
