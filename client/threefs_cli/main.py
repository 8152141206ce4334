"""The program `threefs`."""

import errno
from typing import Any

import click

from threefs import __version__
from threefs.errors import InvalidArgument, ThreefsError
from threefs_cli import (
    backup_commands,
    bench_command,
    chain_commands,
    checkpoint_commands,
    chunk_commands,
    cluster_commands,
    config_commands,
    data_commands,
    demo_command,
    disk_commands,
    doctor_command,
    fsck_command,
    health_command,
    init_command,
    inspect_commands,
    key_command,
    manager_commands,
    meta_commands,
    mount_commands,
    move_commands,
    namespace_commands,
    node_commands,
    quota_commands,
    scrub_commands,
    table_commands,
    target_commands,
    transfer_commands,
    trash_commands,
)

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


class Commands(click.Group):
    """Prints an error in one line. Exit code 2: the command line is wrong; 1: the command did not work."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except InvalidArgument as error:
            raise _Unusable(str(error)) from None
        except ThreefsError as error:
            raise click.ClickException(str(error)) from None
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise  # the reader of our output has closed the pipe: click ends quietly
            where = f"{error.filename}: " if error.filename else ""
            raise click.ClickException(f"{where}{error.strerror or error}") from None


class _Unusable(click.ClickException):
    exit_code = 2


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]}, epilog=_EXAMPLES)
@click.version_option(__version__, prog_name="threefs")
def main() -> None:
    """threefs, a distributed file system for AI training and inference."""


MODULES = (
    cluster_commands,
    health_command,
    init_command,
    key_command,
    chain_commands,
    chunk_commands,
    node_commands,
    move_commands,
    table_commands,
    target_commands,
    disk_commands,
    scrub_commands,
    config_commands,
    inspect_commands,
    transfer_commands,
    namespace_commands,
    data_commands,
    checkpoint_commands,
    mount_commands,
    quota_commands,
    trash_commands,
    fsck_command,
    meta_commands,
    manager_commands,
    backup_commands,
    bench_command,
    demo_command,
    doctor_command,
)

for module in MODULES:
    for command in module.COMMANDS:
        main.add_command(command)
