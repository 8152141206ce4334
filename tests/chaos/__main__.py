"""`python -m tests.chaos --minutes 5`: real processes, real faults, one history, one verdict."""

import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import click

from tests.chaos import audit
from tests.chaos.cluster import SMALL, WIDE, Cluster, Shape, cluster_in, lacking
from tests.chaos.counting import Counting
from tests.chaos.faults import Faults
from tests.chaos.load import CHUNKS, Load
from tests.chaos.names import Names
from tests.harness import name_history
from tests.harness.linearizability import Undecided, violations
from tests.harness.termination import exit_on_signals

_SETTLE_S = 60.0
_WORLDS = {"small": [SMALL], "wide": [WIDE], "both": [SMALL, WIDE]}


@click.command()
@click.option("--minutes", default=5.0, show_default=True, help="How long faults strike, in all worlds together.")
@click.option("--seed", default=1, show_default=True, help="Of the faults and of the load.")
@click.option("--clients", default=6, show_default=True)
@click.option(
    "--world",
    type=click.Choice(sorted(_WORLDS)),
    default="both",
    show_default=True,
    help="small: one manager, one meta service. wide: three, two, all on etcd, and two mounts.",
)
@click.option("--json", "path", type=click.Path(path_type=Path), help="Write the counts there.")
@click.option("--logs", type=click.Path(path_type=Path), help="Keep the logs of all processes there after a violation.")
def main(minutes: float, seed: int, clients: int, world: str, path: Path | None, logs: Path | None) -> None:
    """Kill, stop and cut off real processes under load, and check what clients saw and what replicas hold."""
    exit_on_signals()
    shapes = []
    for shape in _WORLDS[world]:
        if reason := lacking(shape):
            print(f"skipped: {shape} ({reason})")
        else:
            shapes.append(shape)
    results = []
    for shape in shapes:
        with (
            tempfile.TemporaryDirectory(prefix="threefs-chaos-") as directory,
            cluster_in(Path(directory), shape) as cluster,
        ):
            results.append(asyncio.run(run(cluster, minutes * 60 / len(shapes), seed, clients)))
            if logs is not None and results[-1]["violations"]:
                cluster.keep_logs(logs)
        click.echo(json.dumps(results[-1], indent=2))
    if path is not None:
        path.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    sys.exit(1 if any(result["violations"] for result in results) or not results else 0)


async def run(cluster: Cluster, seconds: float, seed: int, clients: int) -> dict[str, Any]:
    began = time.monotonic()

    def tell(line: str) -> None:
        click.echo(f"{time.monotonic() - began:7.2f} {line}", err=True)

    await cluster.start()
    problems: list[str] = []
    if wrong := await cluster.healthy(_SETTLE_S):
        problems.append(f"it did not start: {wrong}")
    load = Load(cluster.address, clients, seed)
    names = Names(cluster.address, 3, list(cluster.mounts.values()), seed)
    counting = Counting(list(cluster.mounts.values()), cluster.directory)
    await names.prepare()
    counting.start()
    faults = Faults(cluster, seed, tell)
    load.fault = lambda: faults.now
    load.tell = tell
    loading = asyncio.gather(load.run(), names.run())
    await asyncio.sleep(1.0)
    await faults.run(seconds)
    tell("faults have ended")
    if wrong := await cluster.healthy(_SETTLE_S):
        problems.append(f"I13: not well {_SETTLE_S:.0f} s after the last fault: {wrong}")
    load.stop()
    names.stop()
    try:
        await asyncio.wait_for(loading, _SETTLE_S)
    except (TimeoutError, ExceptionGroup) as error:
        problems.append(f"the load did not end well: {error!r} {getattr(error, 'exceptions', '')}")
    tell("the load has ended")
    last = await load.connect()
    for chunk in range(CHUNKS):
        await load.read(last, "last", chunk)
    await load.close()
    await names.look_last()
    problems += await asyncio.to_thread(counting.end, _SETTLE_S)
    tell("auditing replicas and names")
    problems += await audit.replicas(cluster.addresses, _SETTLE_S)
    problems += await audit.fsck(cluster.address)
    problems += load.errors + faults.problems
    tell("stopping all")
    problems += cluster.end()
    problems += await audit.namespace(cluster.store)
    tell("judging the histories")
    problems += name_history.violations(names.history)
    try:
        problems += violations(load.history)
    except Undecided as error:
        problems.append(f"undecided: {error}")
    return _result(cluster.shape, seconds, seed, load, names, counting, faults, problems)


def _result(
    shape: Shape,
    seconds: float,
    seed: int,
    load: Load,
    names: Names,
    counting: Counting,
    faults: Faults,
    problems: list[str],
) -> dict[str, Any]:
    return {
        "managers": shape.managers,
        "meta_services": shape.metas,
        "mounts": shape.mounts,
        "seed": seed,
        "minutes": round(seconds / 60, 2),
        "faults": sum(faults.counts.values()),
        "faults_by_kind": faults.counts,
        "operations": load.operations,
        "unknown": load.unknown,
        "operations_on_names": len(names.history),
        "steps_under_locks": counting.told,
        "violations": len(problems),
        "problems": [problem[:3000] for problem in problems[:20]],
        "longest_read_stall_s": round(load.longest["read"], 3),
        "longest_write_stall_s": round(load.longest["write"], 3),
        "longest_file_operation_s": round(load.longest["meta"], 3),
        "stalls_by_fault_s": {
            kind: {what: round(worst, 3) for what, worst in stalls.items()} for kind, stalls in load.by_fault.items()
        },
    }


if __name__ == "__main__":
    main()
