"""`threefs config`: the configuration of a cluster, in versions."""

import asyncio
import getpass
import os
from collections.abc import Mapping, Sequence
from typing import Any

import click
from threefs_client import AsyncFileSystem

from threefs import configuration
from threefs.configuration import KEYS, Configuration, Key, Role, Value
from threefs.env.clock import CLOCK
from threefs.env.random import RANDOM
from threefs.errors import InvalidArgument, NotFound
from threefs.rpc.methods import GET_CONFIGURATION, GET_STATUS, SET_CONFIGURATION
from threefs.wire import manager_pb2 as pb
from threefs_cli import output
from threefs_cli.cluster_selector import ClusterSelector, cluster_options, managers
from threefs_cli.cluster_state import CALL_TIMEOUT_S, until_answered
from threefs_cli.configured_processes import (
    client_lines,
    client_outcomes,
    clients,
    leave_out,
    outcome_lines,
    processes,
    successor,
    superseded_line,
)

_APPLIED_S = 10.0  # for which a change waits until the processes have applied it
_POLL_S = 0.1
_MAX_CLIENTS = 50  # lines of a table
_DEFAULT = "default"  # as a value: back to it


@click.group()
def config() -> None:
    """The configuration of a cluster: values that hold for all its processes, kept in versions."""


@config.command(
    name="get",
    epilog="""
\b
Examples:
  threefs config get
  threefs config get scrub_bytes_per_s
  threefs config get --node 2             what that process runs with
  threefs config get --json
""",
)
@click.argument("key", required=False)
@click.option("--node", type=click.IntRange(1), help="The values in force in this storage node or meta service.")
@cluster_options
def get_values(selector: ClusterSelector, key: str | None, node: int | None) -> None:
    """Show each value, where it comes from, and which programs take it.

    A value in the settings file of a process wins over that of the cluster, and that over the default.
    """
    keys = [configuration.find(key)] if key else list(KEYS.values())
    url = selector.url()
    if node is not None:
        _show_node(selector, url, keys, node)
        return
    current = configuration.from_wire(selector.run(lambda fs: _ask(fs, url)).configuration)
    if selector.as_json:
        output.print_json({"version": current.version, "keys": [_described(one, current) for one in keys]})
        return
    table = output.table("key", "value", "from", "programs", "takes effect", "what it is")
    for one in keys:
        table.add_row(
            one.name,
            shown_value(one.name, current.texts.get(one.name)),
            _source(one, current),
            _programs(one),
            "at once" if one.is_hot else "with a restart",
            f"{one.meaning} ({_bounds(one)})",
        )
    output.print_table(table)
    click.echo(f"version {current.version} of the configuration")


def _show_node(selector: ClusterSelector, url: str, keys: Sequence[Key], node_id: int) -> None:
    """The values that one process runs with, by its last heartbeat."""
    status = selector.run(lambda fs: _status(fs, url))
    found = next((one for one in processes(status) if one.node_id == node_id), None)
    if found is None:
        raise NotFound(f"node {node_id} is not in the plan of this cluster; `threefs config status` lists the nodes")
    current = configuration.from_wire(status.configuration)
    concerned = [one for one in keys if found.role in one.roles]
    if not concerned:
        raise InvalidArgument(f"{found.name} does not take {keys[0].name}; {_programs(keys[0])} does")
    values = [(one, *found.value(one.name, current)) for one in concerned]
    if selector.as_json:
        rows = [
            {"name": one.name, "value": value, "source": source.value, "state": state, "reason": reason}
            for one, value, source, state, reason in values
        ]
        output.print_json({"node_id": node_id, "version": found.version, "state": found.state(current), "keys": rows})
        return
    table = output.table("key", "value", "from", "")
    for one, value, source, state, reason in values:
        shown = "unknown" if value is None else configuration.shown(one, value)
        table.add_row(one.name, shown, source.value, output.printable(f"{state}: {reason}" if reason else state))
    output.print_table(table)
    click.echo(f"{found.name}: {found.state(current)}")


@config.command(
    name="status",
    epilog="""
\b
Examples:
  threefs config status
  threefs config status --json
""",
)
@cluster_options
def status(selector: ClusterSelector) -> None:
    """Show which version each process runs with, and the values that it has not taken.

    Clients and mounts that run with all values of the newest version are only counted.
    """
    url = selector.url()
    reply = selector.run(lambda fs: _status(fs, url))
    current = configuration.from_wire(reply.configuration)
    found, connected = processes(reply), clients(reply)
    if selector.as_json:
        output.print_json(
            {
                "version": current.version,
                "processes": [one.described(current) for one in found],
                "clients": [one.described(current) for one in connected],
                "more_clients": reply.more_clients,
            }
        )
        return
    table = output.table("process", "version", "state", "keys")
    special = [one for one in connected if one.state(current) != "applied" or one.exceptions()]
    for one in [*found, *special[:_MAX_CLIENTS]]:
        version = "-" if one.report is None else str(one.version)
        table.add_row(output.printable(one.name), version, one.state(current), output.printable(one.exceptions()))
    if plain := len(connected) - len(special):
        table.add_row(f"clients and mounts: {plain}", str(current.version), "applied", "")
    if len(special) > _MAX_CLIENTS:
        table.add_row(f"clients and mounts: {len(special) - _MAX_CLIENTS} more", "", "", "`--json` names them")
    output.print_table(table)
    if reply.more_clients:
        click.echo("there are more clients and mounts than the manager keeps in mind")
    click.echo(f"version {current.version} of the configuration")


@config.command(
    name="set",
    epilog="""
\b
Examples:
  threefs config set scrub_bytes_per_s=64MiB -m "new disks"
  threefs config set full_ratio=0.95 nearly_full_ratio=80% --dry-run
  threefs config set scrub_bytes_per_s=default
""",
)
@click.argument("changes", nargs=-1, required=True, metavar="KEY=VALUE...")
@click.option("-m", "--message", default="", help="Why: `threefs config history` shows it.")
@click.option(
    "--at-version", type=click.IntRange(0), help="Change nothing unless this is the newest version: the one looked at."
)
@click.option("--dry-run", is_flag=True, help="Only check, and say who would take the values.")
@cluster_options
def set_values(
    selector: ClusterSelector, changes: Sequence[str], message: str, at_version: int | None, dry_run: bool
) -> None:
    """Set values for all processes, as a new version. KEY=default takes a key back to its default.

    All values are checked before any of them is stored. If somebody else changes the configuration in between, nothing
    is stored.
    """
    parts = [change.partition("=") for change in changes]
    for name, equals, value in parts:
        if value != _DEFAULT:  # a later release may have set a key that this one does not know
            configuration.find(name)
        if not equals:
            raise InvalidArgument(f"a change is written KEY=VALUE, for example {name}=default, not {name!r}")
    request = pb.SetConfigurationRequest(
        changes=[
            pb.ConfigurationChange(name=name, value=None if value == _DEFAULT else value) for name, _, value in parts
        ],
    )
    _change(selector, request, message, at_version, dry_run)


@config.command(
    name="history",
    epilog="""
\b
Examples:
  threefs config history
  threefs config history --json
""",
)
@cluster_options
def history(selector: ClusterSelector) -> None:
    """List the versions, the newest first: who has made each, when and why, and what has changed in it."""
    url = selector.url()
    versions = list(selector.run(lambda fs: _ask(fs, url)).versions)
    before: dict[str, str] = {}
    rows = []
    for number, one in enumerate(versions):
        found = configuration.from_wire(one.configuration)
        # The change of the oldest one that is kept is not known any more.
        changed = configuration.differences(before, found.texts) if number or found.version == 1 else None
        rows.append(_version_json(one, found, changed))
        before = dict(found.texts)
    rows.reverse()
    if selector.as_json:
        for row in rows:
            row["values"] = {name: _in_json(name, text) for name, text in row["values"].items()}
            row["changes"] = None if row["changes"] is None else _changes_json(row["changes"])
        output.print_json({"versions": rows})
        return
    for row in rows:
        back = "" if row["rollback_version"] is None else f"  as in version {row['rollback_version']}"
        click.echo(f"version {row['version']}  {row['made']}  {output.printable(row['who'] or '-')}{back}")
        if row["message"]:
            click.echo(f"    {output.printable(row['message'])}")
        for line in _difference_lines(row["changes"]):
            click.echo(f"    {line}")
    if not rows:
        click.echo("nothing was ever set: all values are the defaults")


@config.command(
    name="rollback",
    epilog="""
\b
Examples:
  threefs config rollback 3 --dry-run
  threefs config rollback 3 -m "the new rate was too high"
  threefs config rollback 0               all defaults
""",
)
@click.argument("version", type=click.IntRange(0))
@click.option("-m", "--message", default="", help="Why: `threefs config history` shows it.")
@click.option(
    "--at-version", type=click.IntRange(0), help="Change nothing unless this is the newest version: the one looked at."
)
@click.option("--dry-run", is_flag=True, help="Only check, and say who would take the values.")
@cluster_options
def rollback(selector: ClusterSelector, version: int, message: str, at_version: int | None, dry_run: bool) -> None:
    """Make a new version with the values of an old one. Version 0 has the defaults."""
    _change(selector, pb.SetConfigurationRequest(rollback_version=version), message, at_version, dry_run)


def _change(
    selector: ClusterSelector,
    request: pb.SetConfigurationRequest,
    message: str,
    at_version: int | None,
    dry_run: bool,
) -> None:
    url = selector.url()
    request.who = author()
    request.message, request.dry_run, request.call_id = message, dry_run, RANDOM.token(16)

    async def work(fs: AsyncFileSystem) -> tuple[pb.SetConfigurationReply, pb.GetStatusReply]:
        seen = (await _ask(fs, url)).configuration.version if at_version is None else at_version
        request.known_version = seen
        reply = await managers(fs, url).call(SET_CONFIGURATION, request, timeout_s=CALL_TIMEOUT_S)
        is_new = reply.configuration.version != reply.before.version and not dry_run
        return reply, await (_applied_status(fs, url) if is_new else _status(fs, url))

    reply, status = selector.run(work)
    before, after = configuration.from_wire(reply.before), configuration.from_wire(reply.configuration)
    different = configuration.differences(before.texts, after.texts)
    changes = _changes(different)
    newest, kept = successor(after, different, status)
    outcomes = [one.outcome(kept, newest, is_planned=dry_run) for one in processes(status)] if kept else []
    of_clients = [name for name in kept if name not in KEYS or Role.CLIENT in KEYS[name].roles]
    told = client_outcomes(clients(status), of_clients, newest, is_planned=dry_run)
    if selector.as_json:
        rows = [outcome.described() for outcome in outcomes]
        client_rows = [outcome.described() for outcome in told]
        output.print_json(
            {
                "version": after.version,
                "dry_run": dry_run,
                "changes": _changes_json(changes),
                "processes": rows,
                "clients": client_rows,
            }
        )
        return
    if not changes:
        click.echo(f"nothing changes: version {after.version} has these values")
        return
    click.echo(f"{'would be ' if dry_run else ''}version {after.version}")
    for line in _difference_lines(changes):
        click.echo(f"    {line}")
    if newest.version > after.version:
        click.echo(superseded_line(newest, kept, different))
    for line in outcome_lines(outcomes):
        click.echo(line)
    for line in client_lines(told, of_clients):
        click.echo(output.printable(line))


def author() -> str:
    """The user and host of this command, for the history."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # in a container, a user may have no name
        user = str(os.getuid())
    return f"{user}@{os.uname().nodename}"


async def _applied_status(fs: AsyncFileSystem, url: str) -> pb.GetStatusReply:
    """The status when all processes that live have said what they do with the newest version, or after a while."""
    deadline = CLOCK.monotonic() + _APPLIED_S
    while True:
        status = await until_answered(lambda: _status(fs, url))
        current = configuration.from_wire(status.configuration)
        awaited = [one for one in (*processes(status), *clients(status)) if one.is_expected(current)]
        if CLOCK.monotonic() > deadline or not awaited:
            return status
        await asyncio.sleep(_POLL_S)


async def _status(fs: AsyncFileSystem, url: str) -> pb.GetStatusReply:
    """With the clients, but for this command."""
    request = pb.GetStatusRequest(clients=True)
    status = await managers(fs, url).call(GET_STATUS, request, timeout_s=CALL_TIMEOUT_S)
    leave_out(status, fs.context.client)
    return status


async def _ask(fs: AsyncFileSystem, url: str) -> pb.GetConfigurationReply:
    return await managers(fs, url).call(GET_CONFIGURATION, pb.GetConfigurationRequest(), timeout_s=CALL_TIMEOUT_S)


def _source(key: Key, current: Configuration) -> str:
    return "cluster" if key.name in current.texts else "default"


def _programs(key: Key) -> str:
    return ", ".join(sorted(role.value for role in key.roles))


def _bounds(key: Key) -> str:
    if key.words:
        return ", ".join(key.words)
    return f"{configuration.shown(key, key.least)} to {configuration.shown(key, key.most)}"


def shown_value(name: str, text: str | None) -> str:
    """A value for people; one that this release does not take as it is stored."""
    key = KEYS.get(name)
    if key is None:
        return "default" if text is None else text
    if text is None:
        return configuration.shown(key, key.default)
    try:
        return configuration.shown(key, configuration.parse(key, text))
    except InvalidArgument:
        return text


def _in_json(name: str, text: str | None) -> Value | None:
    """A value in the unit of its key; as it is stored if it is of another release. None: the default."""
    if text is None or name not in KEYS:
        return text
    try:
        return configuration.parse(KEYS[name], text)
    except InvalidArgument:
        return text


def _described(key: Key, current: Configuration) -> dict[str, Any]:
    text = current.texts.get(key.name)
    return {
        "name": key.name,
        "value": key.default if text is None else _in_json(key.name, text),
        "source": _source(key, current),
        "default": key.default,
        "unit": key.kind.value,
        "least": None if key.words else key.least,
        "most": None if key.words else key.most,
        "words": list(key.words),
        "programs": sorted(role.value for role in key.roles),
        "hot": key.is_hot,
        "meaning": key.meaning,
    }


def _version_json(
    one: pb.ConfigurationVersion, found: Configuration, changed: Mapping[str, tuple[str | None, str | None]] | None
) -> dict[str, Any]:
    return {
        "version": found.version,
        "made": output.timestamp(found.made_ns),
        "who": one.who,
        "message": one.message,
        "rollback_version": one.rollback_version if one.HasField("rollback_version") else None,
        "values": dict(found.texts),
        "changes": None if changed is None else _changes(changed),
    }


def _changes(changed: Mapping[str, tuple[str | None, str | None]]) -> list[dict[str, Any]]:
    return [{"name": name, "before": before, "after": after} for name, (before, after) in changed.items()]


def _changes_json(changes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [dict(one) | {side: _in_json(one["name"], one[side]) for side in ("before", "after")} for one in changes]


def _difference_lines(changes: Sequence[Mapping[str, Any]] | None) -> list[str]:
    if changes is None:
        return ["(the version before is not kept any more)"]
    lines = []
    for one in changes:
        was, now = (shown_value(one["name"], one[side]) for side in ("before", "after"))
        words = [f"{text} (default)" if one[side] is None else text for text, side in ((was, "before"), (now, "after"))]
        lines.append(output.printable(f"{one['name']}: {words[0]} -> {words[1]}"))
    return lines
