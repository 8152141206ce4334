"""`threefs doctor`."""

import dataclasses
import os
import shutil
import stat
import tomllib
from pathlib import Path
from typing import Any

import click

from threefs.env import machine
from threefs.env.net import parse_address
from threefs.errors import InvalidArgument
from threefs.health import verdict
from threefs_cli import machine_health, output, reason_output
from threefs_cli.machine_health import DirectoryFacts, Machine
from threefs_cli.option_types import json_option

_PORTS = ("port", "control_port", "metrics_port")


@click.command(
    epilog="""
\b
Examples:
  threefs doctor --data-dir /srv/threefs/disk1 --listen 10.0.0.1:7021
  sudo -u threefs threefs doctor /etc/threefs/storage-1.toml
  threefs doctor --json

\b
Exit codes:
  0  OK
  1  WARN: a service would run, and something is not as it should be
  2  ERR: a service would not run, or could lose data; or the command line is wrong
"""
)
@click.option(
    "--data-dir", "directories", type=click.Path(path_type=Path), multiple=True, help="A directory for data to try."
)
@click.option("--listen", "listens", multiple=True, metavar="HOST:PORT", help="An address at which a service is to be.")
@click.argument("settings", type=click.Path(path_type=Path), nargs=-1, metavar="[SETTINGS]...")
@json_option
def doctor(directories: tuple[Path, ...], listens: tuple[str, ...], settings: tuple[Path, ...], as_json: bool) -> None:
    """Check whether this machine is fit for a service, before it joins a cluster.

    SETTINGS are files of services that do not run yet: their directories and ports are tried. Run it as the user of the
    service. Files that are written for a measurement have no name and are gone afterwards.
    The exit code is the severity: 0, 1 or 2. docs/health.md explains the reasons.
    """
    tables = [_table(path) for path in settings]
    named = [*directories, *(Path(table["data_dir"]) for table in tables if isinstance(table.get("data_dir"), str))]
    addresses = [*listens, *(address for table in tables for address in _addresses(table))]
    found = measure(list(dict.fromkeys(named)), list(dict.fromkeys(addresses)))
    reasons = machine_health.reasons(found)
    if as_json:
        output.print_json({**reason_output.describe(reasons), "measured": describe(found)})
    else:
        click.echo(verdict.severity(reasons).name)
        for line in (*_measurements(found), *reason_output.lines(reasons)):
            click.echo(line)
    click.get_current_context().exit(int(verdict.severity(reasons)))


def _table(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"the settings file {path} cannot be read: {error}") from None


def _addresses(table: dict[str, Any]) -> list[str]:
    host = table.get("host", "127.0.0.1")
    where = f"[{host}]" if ":" in str(host) else str(host)
    ports = [table.get(name) for name in _PORTS]
    return [f"{where}:{port}" for port in ports if type(port) is int and port]


def measure(directories: list[Path], addresses: list[str]) -> Machine:
    tried = [(address, machine.refused_port(*parse_address(address))) for address in addresses]
    return Machine(
        kernel=machine.kernel_version(),
        descriptors=machine.descriptor_limit(),
        clock=machine.clock(),
        fuse_device=os.access("/dev/fuse", os.R_OK | os.W_OK),
        fuse_helper=shutil.which("fusermount3") is not None,
        refused_ports=[(address, why) for address, why in tried if why is not None],
        directories=[_directory(path) for path in directories],
    )


def _directory(path: Path) -> DirectoryFacts:
    absolute = path.absolute()
    existing = next(one for one in (absolute, *absolute.parents) if one.exists())
    mode = existing.stat().st_mode
    facts = DirectoryFacts(
        path=str(absolute),
        existing=str(existing),
        is_directory=stat.S_ISDIR(mode),
        writable=os.access(existing, os.W_OK | os.X_OK),
        mode=stat.S_IMODE(mode),
    )
    if not (facts.is_directory and facts.writable):
        return facts
    try:
        return _with_disk(facts)
    except OSError as error:
        return dataclasses.replace(facts, failure=error.strerror or str(error))


def _with_disk(facts: DirectoryFacts) -> DirectoryFacts:
    existing = Path(facts.existing)
    facts = dataclasses.replace(facts, file_system=machine.file_system(existing))
    return dataclasses.replace(facts, syncs=machine.measure_syncs(existing))


def describe(found: Machine) -> dict[str, Any]:
    described = dataclasses.asdict(found)
    for directory in described["directories"]:
        directory["mode"] = f"{directory['mode']:04o}"
        if directory["file_system"] is not None:
            directory["file_system"]["options"] = sorted(directory["file_system"]["options"])
    return described


def _measurements(found: Machine) -> list[str]:
    return [
        f"{one.path}: {one.file_system.kind or 'unknown file system'}, {output.size(one.file_system.free_bytes)} free, "
        f"a sync takes {one.syncs.median_s * 1e6:,.0f} µs (the median)"
        for one in found.directories
        if one.file_system is not None and one.syncs is not None
    ]
