from pathlib import Path

import pytest
from threefs_manager.settings import Settings

from threefs import settings
from threefs.errors import InvalidSettings


def test_only_the_directory_must_be_said(tmp_path: Path) -> None:
    file = tmp_path / "manager.toml"
    file.write_text('data_dir = "/d"\n')
    loaded = settings.load(Settings, file)
    assert loaded == Settings(data_dir=Path("/d"))
    assert loaded.host == "127.0.0.1", "nobody is served from outside unless it is asked for"


def test_the_token_is_not_shown() -> None:
    assert "secret" not in repr(Settings(data_dir=Path("/d"), token="secret"))


def test_a_directory_that_is_missing_is_named(tmp_path: Path) -> None:
    file = tmp_path / "manager.toml"
    file.write_text("port = 1\n")
    with pytest.raises(InvalidSettings, match="data_dir"):
        settings.load(Settings, file)
