"""`python -m tests.bench`: all figures of the metadata in one file. `make bench-meta` runs it.

It stands here because it kills services and engines, which only the tests know how to start. Each part can be had alone
(`--only`), and what is done is written before the next part begins.
"""

import asyncio
import json
import os
import platform
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import click
import uvloop
from threefs_bench import growing_directory, metadata_rates, mount_comparison
from threefs_bench.peer_harness import HARNESS, NAMES, Harness
from threefs_cli.cluster_file import ClusterFile, Plan
from threefs_cli.local_cluster import LocalCluster

from tests.bench import clients, engines, failover
from tests.harness.mounts import lacking
from tests.harness.termination import exit_on_signals

PARTS = ("client", "mount", "engines", "failover", "directory")
_PEER_S = 600.0
ROUNDS = 3


class Run:
    """One run: where it works, how much, and what it has found. `tables` are Markdown, for people."""

    def __init__(
        self, scratch: Path, quick: bool, rounds: int, harness: Harness | None, peers: tuple[str, ...]
    ) -> None:
        self.scratch = scratch
        self.quick = quick
        self.rounds = rounds
        self.harness = harness
        self.peers = peers
        self.tables: list[str] = []

    def tell(self, line: str) -> None:
        click.echo(line, err=True)

    def client(self) -> Any:
        seconds = 1.0 if self.quick else 3.0
        rounds = [
            uvloop.run(metadata_rates.measure_fresh(self.scratch / f"client-{number}", seconds=seconds))
            for number in range(self.rounds)
        ]
        figures = [clients.median(figures) for figures in zip(*rounds, strict=True)]
        self.tables.append(f"## Through the client\n\n{clients.table(figures)}")
        return [asdict(figure) for figure in figures]

    def mount(self) -> Any:
        if reason := lacking():
            self.tables.append(f"## Through the mount\n\nNot measured: {reason}.\n")
            return {"failures": {mount_comparison.THREEFS: reason}}
        found = mount_comparison.measure(
            self.peers,
            self.harness,
            self.scratch,
            self.tell,
            rounds=self.rounds,
            files=500 if self.quick else 5000,
        )
        self.tables.append(f"## Through the mount\n\n{mount_comparison.table(found)}")
        medians = found.medians()
        return {
            "by": "mountbench" if self.harness is not None else "threefs_bench mount",
            "rounds": {system: len(rounds) for system, rounds in found.rounds.items()},
            "medians": {s: {name: asdict(row) for name, row in rows.items()} for s, rows in medians.items()},
            "failures": found.failures,
        }

    def engines(self) -> Any:
        found = engines.measure(self.scratch, self.tell, seconds=1.0 if self.quick else 3.0)
        self.tables.append(f"## Engines\n\n{engines.table(found)}")
        return found

    def failover(self) -> Any:
        found = failover.measure(self.scratch, self.tell, times=self.rounds)
        self.tables.append(f"## Failover\n\n{failover.table(found)}")
        return found

    def directory(self) -> Any:
        sizes = growing_directory.QUICK_SIZES if self.quick else growing_directory.SIZES
        cluster = LocalCluster(self.scratch / "directory")
        started = asyncio.run(cluster.up(Plan(storage=3, replicas=3)))
        try:
            found = _grow(started, sizes, self.scratch / "directory-mnt", self.tell)
        finally:
            asyncio.run(cluster.down())
        self.tables.append(f"## One directory\n\n{growing_directory.table(found)}")
        return [asdict(size) for size in found]


def _grow(
    started: ClusterFile, sizes: Sequence[int], point: Path, tell: Callable[[str], None]
) -> list[growing_directory.Size]:
    """With a mount at `point`, if there can be one."""
    process = started.program("meta").process
    assert process is not None
    measure = partial(growing_directory.measure, started.address, process.pid, sizes, tell)
    if lacking():
        return uvloop.run(measure())
    with mount_comparison.mounted(started.address, point) as mount:
        return uvloop.run(measure(growing_directory.Mount(point, mount)))


def _machine() -> dict[str, Any]:
    return {"cores": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version()}


@click.command()
@click.option("--only", default=",".join(PARTS), show_default=True, help="Parts, with commas between.")
@click.option("--quick", is_flag=True, help="About a tenth of the work: a few minutes.")
@click.option("--rounds", type=click.IntRange(1, 100), help="Medians are taken over so many.  [default: 3; quick: 1]")
@click.option("--peers", "programs", type=HARNESS, help="Directory of the harness for other systems.")
@click.option("--peer", default=",".join(NAMES), show_default=True, help="Which of them.")
@click.option("--work", type=click.Path(path_type=Path, file_okay=False), help="For all data; peers stay installed.")
@click.option("--json", "file", type=click.Path(path_type=Path, dir_okay=False), help="Write the figures there.")
def main(
    only: str, quick: bool, rounds: int | None, programs: Path | None, peer: str, work: Path | None, file: Path | None
) -> None:
    """Figures of the metadata: through the mount, of engines, of failures, and of a large directory."""
    parts = [part for part in only.split(",") if part]
    if unknown := [part for part in parts if part not in PARTS]:
        raise click.BadParameter(f"{unknown[0]} is none of {', '.join(PARTS)}")
    if work is not None:
        work.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = {"machine": _machine(), "quick": quick}
    with tempfile.TemporaryDirectory(prefix="threefs-bench-", dir=work) as scratch:
        harness = None
        if programs is not None:
            harness = Harness(programs.absolute(), (work or Path(scratch)).absolute() / "peers", quick, _PEER_S)
        run = Run(
            Path(scratch),
            quick,
            rounds or (1 if quick else ROUNDS),
            harness,
            tuple(name for name in peer.split(",") if name),
        )
        for part in parts:
            run.tell(f"== {part}")
            found[part] = getattr(run, part)()
            if file is not None:
                file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    click.echo("\n".join(run.tables))


if __name__ == "__main__":
    exit_on_signals()
    main()
