"""Who agrees goes on, who does not ends the command, and a program that cannot be asked is told of --yes."""

import click
import pytest
from click.testing import CliRunner
from threefs_cli import consent

from threefs.errors import InvalidArgument


@click.command()
def drop() -> None:
    consent.ask("Drop it?")
    click.echo("dropped")


def test_only_a_yes_goes_on() -> None:
    assert CliRunner().invoke(drop, input="y\n").stdout == "dropped\n"
    for answer in ("n\n", "\n"):
        refused = CliRunner().invoke(drop, input=answer)
        assert refused.exit_code == 1 and not refused.stdout, refused


def test_without_an_answer_the_command_names_the_option() -> None:
    with pytest.raises(InvalidArgument, match="--yes"):
        CliRunner().invoke(drop, input="", catch_exceptions=False)
