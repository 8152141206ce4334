import os
import sys
from pathlib import Path

import pytest
from threefs_cli import mount_helper
from threefs_client.options import TOKEN_VARIABLE

from tests.support.cluster import LocalCluster
from tests.support.mounts import Mount, lacking
from threefs.errors import InvalidArgument


def test_a_line_of_fstab() -> None:
    words = ["threefs://a:1", "/mnt/data", "-o", "rw,_netdev,nofail,x-systemd.requires=a.service,cache=5,private", "-s"]
    assert mount_helper.arguments(words) == (
        ["mount", "--address", "threefs://a:1", "--cache", "5", "--private", "-o", "rw", "--", "/mnt/data"]
    )


def test_a_trial_does_nothing() -> None:
    assert mount_helper.arguments(["-fnv", "-t", "threefs", "a:1", "/mnt"]) is None


@pytest.mark.parametrize("words", [[], ["a:1"], ["a:1", "/mnt", "-o", "magic"], ["a:1", "/mnt", "-o", "cache="]])
def test_what_is_refused(words: list[str]) -> None:
    with pytest.raises(InvalidArgument):
        mount_helper.arguments(words)


def test_the_secret_comes_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "")
    (tmp_path / "token").write_text("secret\n")
    mount_helper.arguments(["a:1", "/mnt", "-o", f"token_file={tmp_path}/token"])
    assert os.environ[TOKEN_VARIABLE] == "secret"


@pytest.mark.skipif(bool(lacking()), reason=lacking() or "it can be mounted here")
def test_mounting_says_nothing(
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
    mount.umount()
    assert capfd.readouterr() == ("", "")
