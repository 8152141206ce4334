"""`threefs backup`, `threefs restore`: the embedded stores of manager and meta service, copied while in use."""

import asyncio
import contextlib
import platform
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
import uvloop
from threefs_backup import archive
from threefs_backup.archive import ROLES
from threefs_backup.follower import Follower, MetaServices, Service, in_thread
from threefs_backup.reporter import Reporter
from threefs_backup.restore import RestorePoint, find_restore_point, restore
from threefs_client import AsyncFileSystem

from threefs.background import cancel_and_wait
from threefs.env.clock import CLOCK
from threefs.env.systemd_notify import notify
from threefs.errors import AlreadyExists, InvalidArgument, NotFound, NotSupported
from threefs.kv import engine_url
from threefs_cli import cluster_file, output
from threefs_cli.cluster_selector import ClusterSelector, cluster_options, managers
from threefs_cli.error_names import with_filename
from threefs_cli.option_types import json_option
from threefs_cli.store_places import check_data_dir, is_lost, owned_data_dir

INTERVAL_S = 1.0
#: A copy that is further behind than this counts as failed.
MAX_LAG_S = 10.0
_STATUS_S = 5.0
_ROUNDS = 5  # of one copy: in the second one new snapshots are complete, in the third one they may replace the old ones
_MANAGER, _META = "manager", "meta"
Progress = Callable[[str], None]


@click.command(
    epilog="""
\b
Examples:
  threefs backup /mnt/other-disk/backup           copies, then follows until it is stopped
  threefs backup --once /mnt/other-disk/backup    brings it up to date, and ends
"""
)
@click.argument("target", metavar="DIRECTORY", type=click.Path(path_type=Path, file_okay=False))
@click.option("--once", is_flag=True, help="Bring the backup up to date, and end.")
@click.option("--metrics-port", type=click.IntRange(0, 65535), default=0, help="HTTP for Prometheus on this machine.")
@cluster_options
def backup(selector: ClusterSelector, target: Path, once: bool, metrics_port: int) -> None:
    """Copy the metadata and the manager's tables to DIRECTORY, and keep the copy at most 10 s behind.

    The cluster keeps running. DIRECTORY should be on another disk, better on another machine. Only embedded stores are
    copied: etcd and PostgreSQL have backups of their own. `threefs restore` makes new stores from the backup.
    `threefs health` warns when the copy falls behind, or when no backup reports any more.
    """
    progress: Progress = (lambda line: None) if selector.as_json else (lambda line: click.echo(line, err=True))

    name = f"{platform.node()}:{target.absolute()}"

    async def work(fs: AsyncFileSystem) -> None:
        await in_thread(archive.begin_or_continue, target, fs.context.cluster.routing.cluster_id)
        manager = managers(fs, selector.url())
        services: dict[str, Service] = {_META: MetaServices(fs), _MANAGER: manager}
        followers: list[Follower] = []
        for role in ROLES:
            may_replace = partial(_may_replace, role, followers)
            found = partial(Follower, target, role, services[role], may_replace=may_replace, progress=progress)
            followers.append(await in_thread(found))
        report = _Report(followers, as_json=selector.as_json, progress=progress)
        reporter = Reporter(name, manager, followers)
        try:
            async with reporter.running(metrics_port):
                await (_copy_once if once else _follow)(followers, report)
            await reporter.report(goes_on=False)
        finally:
            for follower in followers:
                await follower.close()

    # It follows until Ctrl-C, but one copy that is cut short is none.
    ends_well = contextlib.nullcontext() if once else contextlib.suppress(KeyboardInterrupt)
    with archive.locked(target), ends_well, with_filename(target):
        selector.run(work)


def _may_replace(role: str, followers: Sequence[Follower], moment_ns: int) -> bool:
    """Whether a store may be restored as it was at a moment: its metadata must not refer to chains that the copy of the
    manager's tables lacks."""
    return role != _META or all(one.as_of_ns >= moment_ns for one in followers if one.role == _MANAGER)


async def _copy_once(followers: list[Follower], report: "_Report") -> None:
    """Copy one store after the other, the manager's last, so that it has everything that the metadata refers to.

    A new snapshot that may not replace the old one after some rounds, because the clock was set back, is given up: the
    old one is up to date as well."""
    for _ in range(_ROUNDS):
        for follower in list(followers):
            await _catch_up(follower, followers, report)
        if not any(follower.is_taking_snapshot for follower in followers):
            break
        for follower in followers:
            await follower.snapshot_taken()
    report.all_stores(last=True)


async def _follow(followers: list[Follower], report: "_Report") -> None:
    """Copy each store in rounds of its own, so that none waits for another. Raises only what a later round cannot
    avoid."""
    tasks = [asyncio.create_task(_follow_one(follower, followers, report)) for follower in followers]
    tasks.append(asyncio.create_task(_keep_reporting(report)))
    try:
        await asyncio.gather(*tasks)
    finally:
        await cancel_and_wait(*tasks)


async def _follow_one(follower: Follower, followers: list[Follower], report: "_Report") -> None:
    while follower in followers:
        start = CLOCK.monotonic()
        try:
            await _catch_up(follower, followers, report)
        except NotSupported:
            raise
        except OSError as error:  # ThreefsError is one too
            follower.failure = error.strerror or str(error)
            report.one_store(follower)
        await CLOCK.sleep(max(0.0, start + INTERVAL_S - CLOCK.monotonic()))


async def _catch_up(follower: Follower, followers: list[Follower], report: "_Report") -> None:
    """One round. A store that cannot be copied leaves `followers`; raises NotSupported if it was the last one."""
    try:
        await follower.catch_up()
    except NotSupported as error:
        followers.remove(follower)
        await follower.close()
        if not followers:
            raise
        report.progress(f"{follower.role}: {error}")
    else:
        follower.failure = ""
        report.one_store(follower)


async def _keep_reporting(report: "_Report") -> None:
    while True:
        await CLOCK.sleep(INTERVAL_S)
        report.all_stores()


class _Report:
    """Reports the state of the backup: to people when it changes, to programs every few seconds."""

    def __init__(self, followers: Sequence[Follower], *, as_json: bool, progress: Progress) -> None:
        """`followers` loses those that cannot be copied."""
        self.progress = progress
        self._followers = followers
        self._as_json = as_json
        self._last_states: dict[str, str] = {}
        self._printed_at = 0.0

    def one_store(self, follower: Follower) -> None:
        """After a round of it."""
        self._report_change(follower.role, _state(follower, CLOCK.wall_ns()))

    def all_stores(self, *, last: bool = False) -> None:
        now_ns = CLOCK.wall_ns()
        lagging = [one for one in self._followers if now_ns - one.as_of_ns > MAX_LAG_S * 1e9]
        notify("READY=1" if not lagging else "", f"STATUS={'; '.join(_state(one, now_ns) for one in self._followers)}")
        if self._as_json and (last or CLOCK.monotonic() - self._printed_at >= _STATUS_S):
            self._printed_at = CLOCK.monotonic()
            output.print_json_line({"stores": [describe(one, now_ns) for one in self._followers]})

    def _report_change(self, role: str, state: str) -> None:
        if self._last_states.get(role) != state:
            self._last_states[role] = state
            self.progress(state)


def _state(follower: Follower, now_ns: int) -> str:
    """The state of one copy in words; it changes only when a person should know."""
    if not follower.failure:
        return f"{follower.role}: up to date"
    return f"{follower.role}: behind since {output.timestamp(follower.as_of_ns)}: {follower.failure}"


def describe(follower: Follower, now_ns: int) -> dict[str, Any]:
    return {
        "store": follower.role,
        "as_of": output.timestamp(follower.as_of_ns) if follower.as_of_ns else None,
        "behind_s": round((now_ns - follower.as_of_ns) / 1e9, 1) if follower.as_of_ns else None,
        "length_bytes": follower.length_bytes,
        "failure": follower.failure,
        "earlier_stores": [str(path) for path in follower.earlier_stores],
    }


@click.command(
    name="restore",
    epilog="""
\b
Examples:
  threefs restore /mnt/other-disk/backup                        the lost stores of the cluster of `threefs up`
  threefs restore /mnt/other-disk/backup --dir /srv/cluster
  threefs restore /mnt/other-disk/backup --store meta --data-dir /var/lib/threefs/meta
  threefs restore /mnt/other-disk/backup --store meta --engine etcd://a,b,c/meta
  threefs restore /mnt/other-disk/backup --store meta --snapshot 1
""",
)
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
@click.option("--dir", "cluster", type=click.Path(path_type=Path), help="Directory of a local cluster.")
@click.option("--store", "role", type=click.Choice([_META, _MANAGER]), help="Restore only this one.")
@click.option("--data-dir", type=click.Path(path_type=Path), help="The data_dir of the service; with --store.")
@click.option("--engine", metavar="URL", help="The engine of the service, if it is not embedded; with --store.")
@click.option(
    "--snapshot",
    "number",
    type=click.IntRange(1),
    metavar="NUMBER",
    help="Not from the newest snapshot, but from this one, such as that of before a restore; with --store.",
)
@click.option("--up-to-damage", is_flag=True, help="Restore the part of a damaged log before the damage.")
@json_option
def restore_command(
    directory: Path,
    cluster: Path | None,
    role: str | None,
    data_dir: Path | None,
    engine: str | None,
    number: int | None,
    up_to_damage: bool,
    as_json: bool,
) -> None:
    """Make the lost stores of a cluster from the backup in DIRECTORY.

    The service must be stopped, and its store must be missing or empty: nothing is ever overwritten. The whole backup
    is checked first. Afterwards start the services and run `threefs fsck`, which reports what was lost.
    """
    if (data_dir or engine or number) and not role:
        raise InvalidArgument("--data-dir, --engine and --snapshot name one store: add --store meta or --store manager")
    if role and sum(bool(one) for one in (cluster, data_dir, engine)) > 1:
        raise InvalidArgument("give one of --dir, --data-dir and --engine")
    cluster_id = archive.cluster_id_of(directory)
    found = partial(find_restore_point, directory, up_to_damage=up_to_damage, number=number)
    with archive.kept(directory):
        if data_dir or engine:
            assert role is not None
            data = data_dir.absolute() if data_dir else None
            url = engine_url.url_of(engine or "", (data or Path("/")) / "kv")
            done = uvloop.run(_restore_one(found(role), role, cluster_id, data, url))
        else:
            home = (cluster or cluster_file.default_directory()).absolute()
            local = cluster_file.load(home)
            if local is None:
                raise NotFound(f"{home} holds no cluster; name a service by --store and --data-dir")
            if local.engine:
                raise InvalidArgument(
                    f"the cluster in {home} has the engine {local.plan.engine}; name one store of it by --store and "
                    "--engine, with the URL in the settings.toml of its service"
                )
            done = uvloop.run(_restore_lost(found, cluster_id, home, (role,) if role else ROLES))
    if as_json:
        output.print_json({"restored": [_described(one, point) for one, point in done]})
        return
    for one, point in done:
        click.echo(
            f"restored the store of the {one}: {point.snapshot.records} records and "
            f"{point.change - point.snapshot.change} changes after them; it has everything that was acknowledged by "
            f"{output.timestamp(point.as_of_ns)}"
        )


def _left_out(whole: RestorePoint, part: RestorePoint, until_ns: int) -> str:
    """What somebody should know whose copy of the manager is old, or damaged early."""
    changes = output.count_of(whole.change - part.change, "change", "changes")
    return (
        f"the backup has {changes} more of the metadata, up to "
        f"{output.timestamp(whole.as_of_ns)}. They are left out, because they may name a chain table that the copy of "
        f"the manager lacks, which ends at {output.timestamp(until_ns)}. If no table was made in between, move the "
        "restored store of the meta service away, and restore it alone (--store meta --snapshot "
        f"{int(whole.snapshot.directory.name)}), which takes all, also after a `threefs backup` has gone on"
    )


def _described(role: str, point: RestorePoint) -> dict[str, Any]:
    return {
        "store": role,
        "as_of": output.timestamp(point.as_of_ns),
        "records": point.snapshot.records,
        "changes": point.change - point.snapshot.change,
    }


async def _restore_one(
    point: RestorePoint, role: str, cluster_id: str, data: Path | None, url: engine_url.EngineUrl
) -> list[tuple[str, RestorePoint]]:
    if data is not None:
        check_data_dir(data)
    with owned_data_dir(data, cluster_id):
        engine_url.require_own_place(url)
        store = await engine_url.open_engine(url)
        try:
            await restore(point, store, exclusive=not url.shared)
        except AlreadyExists:
            raise AlreadyExists(f"{url} is not empty; to replace it, move it away first") from None
        finally:
            await store.close()
    return [(role, point)]


async def _restore_lost(
    found: Callable[..., RestorePoint], cluster_id: str, home: Path, roles: Sequence[str]
) -> list[tuple[str, RestorePoint]]:
    """Restore the stores that are missing, empty, or left by an interrupted restore.

    The metadata come first: if this is interrupted between the two and repeated, the manager's tables get all that
    there is, which is as new or newer. Raises AlreadyExists if none is.
    """
    lost = [role for role in roles if await is_lost(home / role / "data", cluster_id)]
    if not lost:
        raise AlreadyExists(
            f"no store is lost in {home}: {' and '.join(roles)} have theirs. Nothing was changed; to replace a store, "
            "move it away first"
        )
    points = {role: found(role) for role in lost}
    if len(lost) > 1:  # the metadata must not refer to chains that the manager's tables lack
        whole, until_ns = points[_META], points[_MANAGER].as_of_ns
        points[_META] = found(_META, until_ns)
        if whole.change > points[_META].change and whole.as_of_ns - until_ns > MAX_LAG_S * 1e9:
            click.echo(_left_out(whole, points[_META], until_ns), err=True)
    done = []
    for role in lost:
        data = home / role / "data"
        url = engine_url.url_of("", data / "kv")
        with owned_data_dir(data, cluster_id):
            store = await engine_url.open_engine(url)
            try:
                await restore(points[role], store, exclusive=True)
            finally:
                await store.close()
        done.append((role, points[role]))
    return done
