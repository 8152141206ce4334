"""The program `threefs` inside the test process."""

import json
from typing import Any

from click.testing import CliRunner, Result
from threefs_cli.main import main


class CommandLine:
    """Runs commands on one cluster."""

    def __init__(self, address: str) -> None:
        self.address = address

    def run(self, *arguments: str) -> Result:
        return CliRunner().invoke(main, [*arguments, "--address", self.address])

    def ok(self, *arguments: str) -> str:
        """Its standard output; it must succeed."""
        result = self.run(*arguments)
        assert result.exit_code == 0, result.output
        return result.stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self.ok(*arguments, "--json"))

    def error(self, *arguments: str) -> str:
        """The one line that it says; it must fail."""
        result = self.run(*arguments)
        assert result.exit_code == 1, result.output
        assert result.stdout == "" and result.stderr.count("\n") == 1
        return result.stderr
