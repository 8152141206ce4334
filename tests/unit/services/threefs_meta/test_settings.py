"""Settings of the meta program."""

from pathlib import Path

import pytest
from threefs_meta.settings import Settings

from threefs.errors import InvalidSettings
from threefs.settings import load


def test_defaults_and_secrets(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(f'data_dir = "{tmp_path}"\nmanager = "m:1"\ncontrol = "m:2"\ntoken = "hush-hush"\n')
    settings = load(Settings, file)
    assert (settings.host, settings.port, settings.manager, settings.control) == ("127.0.0.1", 0, "m:1", "m:2")
    assert "hush-hush" not in repr(settings)


def test_what_is_missing_or_unknown_is_named(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    for text, named in (("", "data_dir"), ('data_dir = "/"\nmanager = "m"\ncontrol = "c"\ncolour = 1', "colour")):
        file.write_text(text)
        with pytest.raises(InvalidSettings, match=named):
            load(Settings, file)
