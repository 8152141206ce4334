"""`threefs key`: a key for a cluster whose services are started by hand or by systemd."""

from pathlib import Path

import click

from threefs import cluster_key
from threefs_cli import output
from threefs_cli.error_names import with_filename
from threefs_cli.option_types import json_option


@click.command(
    epilog="""
\b
Examples:
  threefs key /etc/threefs/key            on one machine; then copy the file to all others
"""
)
@click.argument("file", type=click.Path(path_type=Path))
@json_option
def key(file: Path, as_json: bool) -> None:
    """Make a key for a cluster, in a new FILE that only you may read.

    The settings of every service of the cluster name the file as key_file; clients name it by --key-file or
    $THREEFS_KEY_FILE. A program that can read it can do everything with the cluster. `threefs up` makes its own key.
    """
    cluster_key.check_new(file)
    with with_filename(file):
        cluster_key.make(file)
    if as_json:
        output.print_json({"key_file": str(file)})
    else:
        click.echo(f"{file} holds a new key")
