"""`threefs manager`: emergencies of the manager."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import click
import uvloop
from threefs_backup.restore import empty_store

from threefs.cluster import kept_routing
from threefs.errors import AlreadyExists, InvalidArgument, NotFound
from threefs.kv import dump, engine_url
from threefs.kv.engine_url import EngineUrl
from threefs.kv.restore_mark import in_part
from threefs_cli import cluster_file, consent, manager_rebuild, output
from threefs_cli.cluster_file import STORAGE
from threefs_cli.manager_rebuild import Copy, RebuildPlan
from threefs_cli.option_types import json_option
from threefs_cli.store_places import check_data_dir, is_lost, owned_data_dir


@click.group()
def manager() -> None:
    """Emergencies of the manager, which keeps nodes, targets, chains and tables."""


@manager.command(
    name="rebuild",
    epilog="""
\b
Examples:
  threefs manager rebuild --dry-run                     of the cluster of `threefs up`, after `threefs down`
  threefs manager rebuild --dir /srv/cluster
  threefs manager rebuild --data-dir /var/lib/threefs/manager /srv/threefs/disk1 /srv/threefs/disk2
  threefs manager rebuild --engine etcd://a,b,c/manager copies/routing-*
""",
)
@click.argument("sources", nargs=-1, type=click.Path(path_type=Path, exists=True), metavar="[SOURCE]...")
@click.option("--dir", "cluster", type=click.Path(path_type=Path), help="Directory of a local cluster.")
@click.option("--data-dir", type=click.Path(path_type=Path), help="The data_dir of the manager.")
@click.option("--engine", metavar="URL", help="The engine of the manager, if it is not embedded.")
@click.option("--dry-run", is_flag=True, help="Show what would be made, and what is lost.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
def rebuild(
    sources: tuple[Path, ...],
    cluster: Path | None,
    data_dir: Path | None,
    engine: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Make the lost store of the manager anew, from what storage services know.

    If there is a backup, use `threefs restore`: it knows more. Each SOURCE is the data_dir of a storage service, or a
    copy of the file `routing` in it. Name those of all storage services that can be reached. The manager must be
    stopped, and its store missing or empty: nothing is overwritten.

    Afterwards start all services. Nothing is served before every storage node has reported what it knows of its chains,
    so no bytes are lost that were acknowledged and that a disk still has.
    """
    home = None if data_dir or engine else (cluster or cluster_file.default_directory()).absolute()
    found = manager_rebuild.plan(_copies(sources or _local_sources(home)))
    data, url = _place(home, data_dir, engine)
    if not as_json:
        for line in described(found):
            click.echo(line, err=True)
    if not dry_run:
        if not yes:
            consent.ask(f"Make the store of the manager in {url}?")
        uvloop.run(_make(found, data, url))
    if as_json:
        output.print_json(as_table(found, made=not dry_run))
    elif not dry_run:
        click.echo("the manager has a store again; start all services, then see `threefs status` and `threefs fsck`")


def _local_sources(home: Path | None) -> Sequence[Path]:
    """The data directories of a local cluster. Raises NotFound, InvalidArgument."""
    if home is None:
        raise InvalidArgument("name the data_dir of each storage service, or copies of the file routing in them")
    found = cluster_file.load(home)
    if found is None:
        raise NotFound(f"{home} holds no cluster; name the manager by --data-dir or --engine, and data_dirs of storage")
    places = [home / program.name / "data" for program in found.of(STORAGE)]
    return [place for place in places if (place / kept_routing.NAME).exists()]


def _copies(sources: Sequence[Path]) -> list[Copy]:
    copies = []
    for source in sources:
        file = source / kept_routing.NAME if source.is_dir() else source
        kept = kept_routing.load(file)
        copies.append(Copy(file, kept.node_id, kept.routing, kept_routing.highest_target(kept)))
    return copies


def _place(home: Path | None, data_dir: Path | None, engine: str | None) -> tuple[Path | None, EngineUrl]:
    """The data directory and the engine of the manager. Raises InvalidArgument."""
    if data_dir and engine:
        raise InvalidArgument("give one of --dir, --data-dir and --engine")
    if home is not None:
        local = cluster_file.load(home)
        if local is not None and local.engine:
            raise InvalidArgument(
                f"the cluster in {home} has the engine {local.plan.engine}; name its store by --engine, with the "
                "URL in manager/settings.toml"
            )
        data_dir = home / "manager" / "data"
    data = data_dir.absolute() if data_dir else None
    return data, engine_url.url_of(engine or "", (data or Path("/")) / "kv")


def described(found: RebuildPlan) -> list[str]:
    routing = found.routing
    return [
        f"cluster {routing.cluster_id}, as node {found.newest.node_id} knew it in version {routing.version} of the "
        f"routing: {output.count_of(len(routing.nodes), 'node', 'nodes')}, "
        f"{output.count_of(len(routing.targets), 'target', 'targets')}, "
        f"{output.count_of(len(routing.chains), 'chain', 'chains')}, "
        f"{output.count_of(len(routing.tables), 'table', 'tables')}",
        *(f"lost: {loss}" for loss in found.losses()),
    ]


def as_table(found: RebuildPlan, *, made: bool) -> dict[str, Any]:
    routing = found.routing
    return {
        "cluster_id": routing.cluster_id,
        "made": made,
        "newest_copy": str(found.newest.file),
        "routing_version": routing.version,
        "nodes": len(routing.nodes),
        "targets": len(routing.targets),
        "chains": len(routing.chains),
        "tables": len(routing.tables),
        "read_nodes": list(found.read_nodes),
        "unread_nodes": list(found.unread_nodes),
        "unsettled_chains": list(found.unsettled_chains),
        "lost": found.losses(),
    }


async def _make(found: RebuildPlan, data: Path | None, url: EngineUrl) -> None:
    """Fill the store. One that an earlier attempt has left in part is emptied first, if only one process can use it.

    Raises AlreadyExists, Unavailable, WrongCluster.
    """
    cluster_id = found.routing.cluster_id
    if data is not None:
        check_data_dir(data)
        if not await is_lost(data, cluster_id):
            raise AlreadyExists(f"{url} is not lost: the manager has its store, or runs; to replace it, move it away")
    async with AsyncExitStack() as stack:
        stack.enter_context(owned_data_dir(data, cluster_id))
        engine_url.require_own_place(url)
        store = await engine_url.open_engine(url)
        stack.push_async_callback(store.close)
        if data is not None and await in_part(store.begin()):
            await empty_store(store)
        await dump.begin_restore(store)
        await dump.fill(store, found.pairs())
        await dump.end_restore(store)
