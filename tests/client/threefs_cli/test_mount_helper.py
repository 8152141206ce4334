import os
from pathlib import Path

import pytest
from threefs_cli import mount_helper
from threefs_client.options import TOKEN_VARIABLE

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
