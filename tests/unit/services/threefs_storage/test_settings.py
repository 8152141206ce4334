from pathlib import Path

import pytest
from threefs_storage.settings import Settings

from threefs import settings
from threefs.errors import InvalidSettings

NEEDED = 'node_id = 3\ndata_dir = "/d"\nmanager = "h:1"\n'


def test_node_directory_and_manager_must_be_said(tmp_path: Path) -> None:
    file = tmp_path / "storage.toml"
    file.write_text(NEEDED)
    loaded = settings.load(Settings, file)
    assert loaded == Settings(node_id=3, data_dir=Path("/d"), manager="h:1")
    assert loaded.host == "127.0.0.1", "nobody is served from outside unless it is asked for"
    for line in NEEDED.splitlines():
        file.write_text(NEEDED.replace(line + "\n", ""))
        with pytest.raises(InvalidSettings, match=line.split()[0]):
            settings.load(Settings, file)


def test_a_file_of_an_earlier_release_is_valid(tmp_path: Path) -> None:
    file = tmp_path / "storage.toml"
    file.write_text(NEEDED + 'control = "h:2"\n')
    assert settings.load(Settings, file).manager == "h:1"


def test_an_unknown_setting_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "storage.toml"
    file.write_text(NEEDED + "nodeid = 4\n")
    with pytest.raises(InvalidSettings, match="nodeid"):
        settings.load(Settings, file)


def test_the_token_is_not_shown() -> None:
    assert "secret" not in repr(Settings(node_id=1, data_dir=Path("/d"), manager="", token="secret"))
