"""The example settings are settings that the programs take."""

from pathlib import Path
from typing import Any

import pytest
import threefs_manager.settings
import threefs_meta.settings
import threefs_storage.settings

from threefs import settings

EXAMPLES = Path(__file__).resolve().parents[3] / "deploy" / "settings"
CLASSES: dict[str, type[Any]] = {
    "manager": threefs_manager.settings.Settings,
    "meta": threefs_meta.settings.Settings,
    "storage": threefs_storage.settings.Settings,
}


@pytest.mark.parametrize("program", CLASSES)
def test_the_example_of_each_program_loads(program: str) -> None:
    loaded = settings.load(CLASSES[program], EXAMPLES / f"{program}.toml")
    assert loaded.host == "127.0.0.1", "bound to loopback unless told otherwise"


def test_every_program_has_an_example() -> None:
    assert {path.stem for path in EXAMPLES.iterdir()} == set(CLASSES)


def test_the_examples_fit_together() -> None:
    manager = settings.load(CLASSES["manager"], EXAMPLES / "manager.toml")
    for program in ("meta", "storage"):
        loaded = settings.load(CLASSES[program], EXAMPLES / f"{program}.toml")
        assert loaded.manager == f"{manager.host}:{manager.port}"
