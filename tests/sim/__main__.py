"""`python -m tests.sim --seed 7` replays one run and prints it; `--many 1000` runs that many, on all cores."""

import gc
import json
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import click

from tests.sim.run import Outcome, run
from tests.sim.run_shape import DENSE, USUAL, Shares

#: One history in so many may be too hard for the checker; more would hide what it should find.
_UNDECIDED_PER = 1000


@click.command()
@click.option("--seed", type=int, help="Run this one, and print its scenario and its trace.")
@click.option("--many", type=int, help="Run so many seeds.")
@click.option("--first", type=int, default=1, show_default=True, help="With --many: the first of them.")
@click.option("--dense", is_flag=True, help="Most kinds of faults in each run: slower, and finds more in an hour.")
@click.option("--json", "path", type=click.Path(path_type=Path), help="Write the counts there.")
@click.option("--jobs", type=int, default=0, help="Processes (default: one per core).")
def main(seed: int | None, many: int | None, first: int, dense: bool, path: Path | None, jobs: int) -> None:
    """Simulate whole clusters under faults, and check everything that they promise."""
    shares = DENSE if dense else USUAL
    if seed is not None:
        gc.disable()  # as in many
        _show(run(seed, logs=True, shares=shares))
        return
    if many is None:
        raise click.UsageError("give --seed or --many")
    began = time.monotonic()
    totals, bad, undecided = Counter[str](), [], []
    for done, outcome in enumerate(_outcomes(range(first, first + many), shares, jobs or os.cpu_count() or 1), 1):
        totals.update(operations=outcome["operations"], virtual_ms=outcome["virtual_ms"], steps=outcome["steps"])
        totals.update(searched=outcome["searched"])
        totals.update({f"fault {name}": count for name, count in outcome["faults"].items()})
        if outcome["violations"]:
            bad.append(outcome)
            click.echo(f"seed {outcome['seed']}: {outcome['violations'][0][:1000]}")
        if outcome["undecided"]:
            undecided.append(outcome["seed"])
        if done % 100 == 0:
            click.echo(f"{done} seeds, {len(bad)} with violations, {time.monotonic() - began:.0f} s", err=True)
    faults = {name.removeprefix("fault "): count for name, count in totals.items() if name.startswith("fault ")}
    result = {
        "seeds": many,
        "first": first,
        "dense": dense,
        "virtual_hours": round(totals["virtual_ms"] / 3_600_000, 3),
        "operations": totals["operations"],
        "faults": sum(faults.values()),
        "faults_by_kind": dict(sorted(faults.items())),
        "violations": len(bad),
        "bad_seeds": [outcome["seed"] for outcome in bad],
        "searched": totals["searched"],
        "undecided_seeds": undecided,
        "seconds": round(time.monotonic() - began, 1),
    }
    click.echo(json.dumps(result))
    if path is not None:
        path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    sys.exit(1 if bad or len(undecided) > max(1, many // _UNDECIDED_PER) else 0)


def _show(outcome: Outcome) -> None:
    click.echo("\n".join(outcome.trace))
    click.echo("scenario:\n" + "\n".join(f"  {step}" for step in outcome.scenario))
    click.echo(f"{outcome.operations} operations, {outcome.steps} steps, {outcome.virtual_s:.1f} s, {outcome.longest}")
    if outcome.undecided:
        click.echo(f"undecided: {outcome.undecided}")
    click.echo("\n".join(outcome.violations) or "no violation")
    sys.exit(1 if outcome.violations else 0)


def _outcomes(seeds: range, shares: Shares, jobs: int) -> Iterator[dict[str, Any]]:
    # Each process runs a few seeds and ends: what a dead simulated process leaves behind goes with it.
    with multiprocessing.get_context("fork").Pool(jobs, initializer=gc.disable, maxtasksperchild=4) as pool:
        yield from pool.imap_unordered(partial(_summary, shares), seeds, chunksize=1)


def _summary(shares: Shares, seed: int) -> dict[str, Any]:
    try:
        outcome = run(seed, shares=shares)
    except BaseException as error:
        error.add_note(f"in seed {seed}")
        raise
    return {
        "seed": seed,
        "violations": outcome.violations,
        "searched": outcome.searched,
        "undecided": outcome.undecided,
        "faults": outcome.faults,
        "operations": outcome.operations,
        "virtual_ms": round(outcome.virtual_s * 1000),
        "steps": outcome.steps,
    }


if __name__ == "__main__":
    main()
