"""`python -m tests.chaos --minutes 5`: real processes, real faults, one history, one verdict."""

import asyncio
import json
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import click

from tests.chaos import audit
from tests.chaos.cluster import Cluster, cluster_in
from tests.chaos.faults import Faults
from tests.chaos.load import CHUNKS, Load
from tests.support.linearizability import Undecided, violations

_SETTLE_S = 60.0


@click.command()
@click.option("--minutes", default=5.0, show_default=True, help="How long faults strike.")
@click.option("--seed", default=1, show_default=True, help="Of the faults and of the load.")
@click.option("--clients", default=6, show_default=True)
@click.option("--json", "path", type=click.Path(path_type=Path), help="Write the counts there.")
def main(minutes: float, seed: int, clients: int, path: Path | None) -> None:
    """Kill, stop and cut off real processes under load, and check what clients saw and what replicas hold."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # processes, namespaces and mounts go away then too
    with tempfile.TemporaryDirectory(prefix="threefs-chaos-") as directory, cluster_in(Path(directory)) as cluster:
        result = asyncio.run(run(cluster, minutes * 60, seed, clients))
    click.echo(json.dumps(result, indent=2))
    if path is not None:
        path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    sys.exit(1 if result["violations"] else 0)


async def run(cluster: Cluster, seconds: float, seed: int, clients: int) -> dict[str, Any]:
    began = time.monotonic()

    def tell(line: str) -> None:
        click.echo(f"{time.monotonic() - began:7.2f} {line}", err=True)

    await cluster.start()
    problems: list[str] = []
    if wrong := await cluster.healthy(_SETTLE_S):
        problems.append(f"it did not start: {wrong}")
    load = Load(cluster.address, clients, seed)
    faults = Faults(cluster, seed, tell)
    load.fault = lambda: faults.now
    loading = asyncio.create_task(load.run())
    await asyncio.sleep(1.0)
    await faults.run(seconds)
    tell("faults have ended")
    if wrong := await cluster.healthy(_SETTLE_S):
        problems.append(f"I13: not well {_SETTLE_S:.0f} s after the last fault: {wrong}")
    load.stop()
    try:
        await asyncio.wait_for(loading, _SETTLE_S)
    except (TimeoutError, ExceptionGroup) as error:
        problems.append(f"the load did not end well: {error!r} {getattr(error, 'exceptions', '')}")
    last = await load.connect()
    for chunk in range(CHUNKS):
        await load.read(last, "last", chunk)
    await load.close()
    problems += await audit.replicas(cluster.address, _SETTLE_S)
    problems += await audit.fsck(cluster.address)
    problems += load.errors + faults.problems
    problems += cluster.end()
    problems += await audit.namespace(Path(cluster.programs["meta"].settings["data_dir"]))
    tell("judging the history")
    try:
        problems += violations(load.history)
    except Undecided as error:
        problems.append(f"undecided: {error}")
    return {
        "seed": seed,
        "minutes": round(seconds / 60, 2),
        "faults": sum(faults.counts.values()),
        "faults_by_kind": faults.counts,
        "operations": load.operations,
        "unknown": load.unknown,
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
