"""Plants bugs one by one, and sees that the simulator catches each: `python -m tests.sim.hunt`."""

import gc
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from tests.sim.planted import PLANTED
from tests.sim.run import run
from threefs.errors import ThreefsError

MOST_SEEDS = 1000


def caught_by(name: str, seed: int) -> str:
    """What the run of that seed complains about with the bug in place; "" if nothing. To be called in a process of its
    own, which is spoiled afterwards."""
    PLANTED[name]()
    try:
        outcome = run(seed)
    except (ThreefsError, ArithmeticError, LookupError, TypeError, AttributeError) as error:
        return f"the run broke off: {error!r}"
    return outcome.violations[0] if outcome.violations else ""


def _try(job: tuple[str, int]) -> tuple[str, int, str]:
    return (*job, caught_by(*job))


def hunt(name: str, most_seeds: int, jobs: int) -> tuple[int, str] | None:
    """The first seed found that catches the bug, and by what."""
    with multiprocessing.get_context("fork").Pool(jobs, initializer=gc.disable, maxtasksperchild=1) as pool:
        for _, seed, complaint in pool.imap_unordered(_try, _jobs(name, most_seeds)):
            if complaint:
                pool.terminate()
                return seed, complaint
    return None


def _jobs(name: str, most_seeds: int) -> Iterator[tuple[str, int]]:
    return ((name, seed) for seed in range(1, most_seeds + 1))


@click.command()
@click.option("--only", help="Try this one alone.")
@click.option("--seeds", default=MOST_SEEDS, show_default=True, help="Give up after so many.")
@click.option("--json", "path", type=click.Path(path_type=Path), help="Write the counts there.")
@click.option("--jobs", type=int, default=0, help="Processes (default: one per core).")
def main(only: str | None, seeds: int, path: Path | None, jobs: int) -> None:
    """Plant bugs one by one, and see that the simulator catches each."""
    began = time.monotonic()
    found: dict[str, Any] = {}
    for name in [only] if only else list(PLANTED):
        hit = hunt(name, seeds, jobs or os.cpu_count() or 1)
        found[name] = {"seed": hit[0], "by": hit[1].splitlines()[0][:200]} if hit else None
        click.echo(f"{name:36} " + (f"seed {hit[0]:4}: {hit[1].splitlines()[0][:110]}" if hit else "NOT CAUGHT"))
    caught = sum(hit is not None for hit in found.values())
    result = {
        "planted": len(found),
        "caught": caught,
        "seconds": round(time.monotonic() - began, 1),
        "bugs": found,
    }
    click.echo(f"{caught} of {len(found)} caught")
    if path is not None:
        path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    sys.exit(0 if caught == len(found) else 1)


if __name__ == "__main__":
    main()
