"""The program `threefs`."""

import errno
import sys
from typing import Any, NoReturn

import click
from click.shell_completion import CompletionItem

from threefs import __version__
from threefs.env import unwritten_output
from threefs.errors import InvalidArgument, ThreefsError
from threefs_cli.command_table import ROWS, CommandTable
from threefs_cli.output import printable

_EXAMPLES = """
\b
Examples:
  threefs up                          start a cluster on this machine
  threefs put -r ~/photos /photos     copy a directory into the cluster
  threefs ls -l /photos               list it
  threefs get -r /photos /tmp/back    copy it out of the cluster
  threefs status                      show the nodes and chains
  threefs down                        stop the cluster; its data stays

A command uses the cluster that --address names, else --dir (a local cluster), else
$THREEFS_ADDRESS, else the one that `threefs up` started without --dir. Every command takes --json.
"""

#: Of the explanation beside a name that the shell proposes, as click does it.
_COMPLETION_CHARACTERS = 45
_INTERRUPTED = 130  # 128 + SIGINT, as shells count


class Commands(click.Group):
    """Prints an error in one line. Exit code 2: the command line is wrong; 1: the command did not work; 130: Ctrl-C."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except InvalidArgument as error:
            raise _Unusable(printable(str(error))) from None
        except ThreefsError as error:
            raise click.ClickException(printable(str(error))) from None
        except KeyboardInterrupt:
            ctx.exit(_INTERRUPTED)
        except OSError as error:
            _raise_in_one_line(error)


def _raise_in_one_line(error: OSError) -> NoReturn:
    if error.errno == errno.EPIPE:
        raise error  # the reader of our output has closed the pipe: click ends quietly
    unwritten_output.give_up(sys.stdout)  # else the exit tells it a second time
    where = f"{error.filename}: " if error.filename else ""
    raise click.ClickException(printable(f"{where}{error.strerror or error}")) from None


class _Unusable(click.ClickException):
    exit_code = 2


class Program(Commands):
    """Lists its commands from the table of them, without importing them all."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except OSError as error:  # of the output of --help
            _raise_in_one_line(error)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        limit = formatter.width - 6 - max(map(len, ROWS))  # as click does it
        with formatter.section("Commands"):
            formatter.write_dl([(name, ROWS[name].shortened(limit)) for name in sorted(ROWS)])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        commands = [
            CompletionItem(name, help=ROWS[name].shortened(_COMPLETION_CHARACTERS))
            for name in sorted(ROWS)
            if name.startswith(incomplete)
        ]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]  # those, and its own options


@click.group(
    cls=Program,
    commands=CommandTable(),
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=_EXAMPLES,
)
@click.version_option(__version__, prog_name="threefs")
def main() -> None:
    """threefs, a distributed file system for AI training and inference."""
