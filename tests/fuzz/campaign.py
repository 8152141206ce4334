"""`python -m tests.fuzz --seconds 60`: random and mutated bytes at every decoder and every port."""

import json
import multiprocessing
import os
import random
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import click
from rich.progress import Progress

from tests.fuzz.decoders import DECODERS
from tests.fuzz.mutation import mutated
from tests.fuzz.ports import annoy_client, ports

#: Each is a job of its own, with a cluster of its own: what the manager takes may well remove the nodes of its plan.
PORTS = {f"port-{port}": port for port in ("manager", "meta", "storage", "control", "metrics")}
_SLOW_S = 5.0  # of a core, for one input


def fuzz(name: str, seed: int, seconds: float, least: int = 1) -> dict[str, Any]:
    """How many inputs were tried, and what was found. It goes on until there were `least` of them: another process may
    have the core for all of the time."""
    dice = random.Random(f"{seed}/{name}")
    try:
        if name == "client":
            return {"name": name, "inputs": annoy_client(dice, seconds, least), "finding": ""}
        if name in PORTS:
            with ports() as annoyed:
                return {"name": name, "inputs": annoyed.annoy(PORTS[name], dice, seconds, least), "finding": ""}
        return {"name": name, **_fuzz_decoder(name, dice, seconds, least)}
    except Exception:
        return {"name": name, "inputs": 0, "finding": traceback.format_exc()}


def _fuzz_decoder(name: str, dice: random.Random, seconds: float, least: int) -> dict[str, Any]:
    decoder = DECODERS[name]
    for example in decoder.examples:
        decoder.try_one(example)
    end = time.monotonic() + seconds
    inputs = 0
    while time.monotonic() < end or inputs < least:
        began_s = time.thread_time()
        data = mutated(dice, decoder.examples)
        inputs += 1
        try:
            decoder.try_one(data)
        except Exception:
            return {"inputs": inputs, "finding": f"{data.hex()}\n{traceback.format_exc()}"}
        if time.thread_time() - began_s > _SLOW_S:
            return {"inputs": inputs, "finding": f"{data.hex()}\ntook longer than {_SLOW_S} s of a core"}
    return {"inputs": inputs, "finding": ""}


def _job(job: tuple[str, int, float]) -> dict[str, Any]:
    return fuzz(*job)


@click.command()
@click.option("--seconds", default=60.0, show_default=True, help="For each decoder and each port.")
@click.option("--only", help="One decoder, or `client`, or one port, as in `port-meta`.")
@click.option("--seed", default=1, show_default=True)
@click.option("--json", "path", type=click.Path(path_type=Path), help="Write the counts there.")
def main(seconds: float, only: str | None, seed: int, path: Path | None) -> None:
    """Feed every decoder and every port with bad bytes: no crash, no hang, no other error than ours."""
    names = [only] if only else [*PORTS, "client", *DECODERS]
    results = []
    with (
        multiprocessing.get_context("spawn").Pool(os.cpu_count()) as pool,
        Progress(transient=True) as progress,
    ):
        task = progress.add_task("fuzzing", total=len(names))
        for result in pool.imap_unordered(_job, [(name, seed, seconds) for name in names], chunksize=1):
            results.append(result)
            progress.advance(task)
            click.echo(f"{result['name']:24} {result['inputs']:9} inputs  {result['finding'] or 'nothing found'}")
    findings = sum(bool(result["finding"]) for result in results)
    if path is not None:
        counts = {"seed": seed, "seconds": seconds, "findings": findings, "targets": results}
        path.write_text(json.dumps(counts, indent=2) + "\n", encoding="utf-8")
    sys.exit(1 if findings else 0)
