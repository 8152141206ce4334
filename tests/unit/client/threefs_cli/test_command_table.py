from importlib import import_module
from pathlib import Path

import click
import pytest
import threefs_cli
from threefs_cli.command_table import ROWS, CommandTable

NO_LIMIT = 10_000


def modules() -> list[str]:
    """Of the package, those that have commands."""
    return sorted(path.stem for path in Path(threefs_cli.__path__[0]).glob("*_command*.py"))


@pytest.mark.parametrize("name", ROWS)
def test_a_row_says_what_its_command_says(name: str) -> None:
    command = ROWS[name].load()
    assert command.name == name and not command.hidden
    assert ROWS[name].line == command.get_short_help_str(NO_LIMIT)
    assert ROWS[name].shortened(40) == command.get_short_help_str(40) and len(ROWS[name].shortened(40)) <= 40


def test_every_command_has_a_row_or_is_below_one() -> None:
    commands = list(CommandTable().values())
    known = {
        *commands,
        *(below for each in commands if isinstance(each, click.Group) for below in each.commands.values()),
    }
    assert "inspect_commands" in modules() and len(known) > len(commands)
    for module in modules():
        for name, found in vars(import_module(f"threefs_cli.{module}")).items():
            assert not isinstance(found, click.Command) or found in known, f"{module}.{name}"


def test_to_look_a_name_up_loads_nothing() -> None:
    table = CommandTable()
    assert "ls" in table and "sl" not in table and len(table) == len(ROWS)
    with pytest.raises(KeyError):
        table["sl"]
