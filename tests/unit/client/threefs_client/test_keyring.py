from pathlib import Path

import pytest
from threefs_client import keyring

from threefs import cluster_key
from threefs.errors import InvalidSettings

MANAGERS = ("127.0.0.1:7000",)


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv(keyring.DATA_VARIABLE, str(tmp_path / "home"))
    return tmp_path


def test_what_is_said_goes_before_what_lies_around(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    assert keyring.find(MANAGERS) == ("", "")
    made = {name: cluster_key.make(home / name) for name in ("noted", "key", "variable", "said")}
    keyring.remember(MANAGERS[0], home / "noted")
    assert keyring.find(MANAGERS) == (made["noted"], str(home / "noted"))
    assert keyring.find(("localhost:7000",))[0] == made["noted"]
    assert keyring.find(("127.0.0.1:7001",)) == ("", "")
    assert keyring.find(("127.0.0.1:7001", *MANAGERS))[0] == made["noted"]
    monkeypatch.setenv("THREEFS_DIR", str(home))
    assert keyring.find(MANAGERS)[0] == made["key"]
    monkeypatch.setenv("THREEFS_KEY_FILE", str(home / "variable"))
    assert keyring.find(MANAGERS)[0] == made["variable"]
    monkeypatch.setenv("THREEFS_TOKEN", "token")
    assert keyring.find(MANAGERS) == ("token", "$THREEFS_TOKEN")
    assert keyring.find(MANAGERS, key_file=str(home / "said"))[0] == made["said"]
    assert keyring.find(MANAGERS, token="chosen")[0] == "chosen"


def test_a_file_that_is_named_must_be_one(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    with pytest.raises(InvalidSettings, match="missing"):
        keyring.find(MANAGERS, key_file=str(home / "missing"))
    monkeypatch.setenv("THREEFS_KEY_FILE", str(home / "missing"))
    with pytest.raises(InvalidSettings, match="missing"):
        keyring.find(MANAGERS)


def test_notes_of_clusters_that_are_gone_go_too(home: Path) -> None:
    cluster_key.make(home / "first")
    cluster_key.make(home / "second")
    keyring.remember("127.0.0.1:1", home / "first")
    keyring.remember("127.0.0.1:1", home / "second")
    assert keyring.find(("127.0.0.1:1",))[1] == str(home / "second")
    (home / "second").unlink()
    assert keyring.find(("127.0.0.1:1",)) == ("", "")
    keyring.remember("127.0.0.1:2", home / "first")
    assert [entry.name for entry in (home / "home" / "threefs" / "keys").iterdir()] == ["127.0.0.1:2"]
