"""Plants bugs one by one, and sees that the simulator catches each: `python -m tests.sim.planted_bug_hunt`.

What caught a bug before is tried first (`first_tries.json`: a story or a seed), then a few seeds, the stories, and more
seeds; of some bugs only the real test that they name. Bugs take turns, so a bound on the time leaves those that are
hard to catch for the end.
"""

import contextlib
import gc
import json
import logging
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import click
import structlog

from tests.sim.golden.failovers import STORIES
from tests.sim.planted.catalog import PLANTED, TESTED
from tests.sim.planted.under_pytest import failure_of
from tests.sim.run import run
from tests.sim.scenarios import play
from threefs.errors import ThreefsError

MOST_SEEDS = 1000
FIRST_TRIES = Path(__file__).with_name("first_tries.json")
_SEEDS_BEFORE_STORIES = 6
_LONGEST_S = 120.0  # of one try: what a bug makes endless is caught too

#: A seed, or the name of a story or of a test.
Try = int | str


def caught_by(name: str, attempt: Try) -> str:
    """What that run complains about with the bug in place; "" if nothing. To be called in a process of its own, which
    is spoiled afterwards."""
    if name in TESTED:
        return failure_of(str(attempt), name)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    PLANTED[name]()
    try:
        if isinstance(attempt, str):
            play(STORIES[attempt])
            return ""
        outcome = run(attempt)
    except AssertionError as error:
        return f"the story is another one: {error!r}"
    except TimeoutError:
        return "I13: the story does not end"
    except (ThreefsError, ArithmeticError, LookupError, TypeError, AttributeError, RuntimeError) as error:
        return f"the run broke off: {error!r}"
    return outcome.violations[0] if outcome.violations else ""


@dataclass(slots=True)
class Hunted:
    """One bug, and how far the hunt for it is."""

    name: str
    tries: Iterator[Try]
    made: int = 0
    caught: Try | None = None
    by: str = ""
    broken: bool = False  # the run could not be made
    cpu_s: float = 0.0


@dataclass(slots=True)
class _Running:
    bug: Hunted
    attempt: Try
    process: BaseProcess
    began: float = field(default_factory=time.monotonic)


def tries(name: str, most_seeds: int) -> Iterator[Try]:
    if name in TESTED:
        yield TESTED[name]
        return
    first = _first_tries().get(name)
    if first is not None:
        yield first
    seeds = [seed for seed in range(1, most_seeds + 1) if seed != first]
    yield from seeds[:_SEEDS_BEFORE_STORIES]
    yield from (story for story in STORIES if story != first)
    yield from seeds[_SEEDS_BEFORE_STORIES:]


def _first_tries() -> dict[str, Try]:
    return json.loads(FIRST_TRIES.read_text(encoding="utf-8")) if FIRST_TRIES.exists() else {}


def hunt(bugs: list[Hunted], jobs: int, ends_at: float) -> Iterator[Hunted]:
    """Each bug when it is caught, or when it has been tried in vain. Those that are left when the time is over are not
    told."""
    turns = list(bugs)
    running: dict[Connection, _Running] = {}
    while (turns or running) and time.monotonic() < ends_at:
        while turns and len(running) < jobs:
            bug = turns.pop(0)
            attempt = next(bug.tries, None)
            if attempt is None:
                yield bug
                continue
            bug.made += 1
            pipe, process = _begin(bug.name, attempt)
            running[pipe] = _Running(bug, attempt, process)
        for pipe in [pipe for pipe in wait(list(running), timeout=5.0) if isinstance(pipe, Connection)]:
            one = running.pop(pipe)
            complaint = None
            with contextlib.suppress(EOFError):
                complaint = pipe.recv()
            one.process.join()
            if complaint is None:  # the bug cannot be planted any more, or the simulator itself has failed
                one.bug.broken = True
                yield one.bug
            elif complaint:
                one.bug.caught, one.bug.by = one.attempt, complaint
                yield one.bug
            else:
                turns.append(one.bug)
        for pipe, one in list(running.items()):
            if time.monotonic() - one.began > _LONGEST_S:
                one.process.kill()
                one.process.join()
                del running[pipe]
                one.bug.caught, one.bug.by = one.attempt, f"I13: the run has not ended after {_LONGEST_S:.0f} s"
                yield one.bug
    for one in running.values():
        one.process.kill()


def _begin(name: str, attempt: Try) -> tuple[Connection, BaseProcess]:
    mine, theirs = multiprocessing.get_context("fork").Pipe(duplex=False)

    def work() -> None:
        mine.close()
        theirs.send(caught_by(name, attempt))
        theirs.close()
        os._exit(0)  # nothing of this spoiled process is worth to be tidied up

    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    theirs.close()
    return mine, process


def _told(bug: Hunted) -> dict[str, Any] | None:
    return {"by": bug.caught, "tries": bug.made, "complaint": bug.by.splitlines()[0][:200]} if bug.by else None


def _list() -> None:
    """Each bug with what is tried first, and how many of each kind there are."""
    first = {name: next(tries(name, most_seeds=1)) for name in PLANTED}
    for name, attempt in first.items():
        click.echo(f"{name:64} {attempt}")
    of_tests, of_seeds = len(TESTED), sum(isinstance(attempt, int) for attempt in first.values())
    of_stories = len(first) - of_tests - of_seeds
    click.echo(f"{len(first)} bugs: {of_stories} for a scenario, {of_seeds} for seeds, {of_tests} for a real test")


@click.command()
@click.option("--list", "lists", is_flag=True, help="Only list them, with what is tried first.")
@click.option("--only", help="Try these alone (names, with commas between).")
@click.option("--seeds", default=MOST_SEEDS, show_default=True, help="Give up after so many.")
@click.option("--minutes", default=40.0, show_default=True, help="Give up after so long.")
@click.option("--json", "path", type=click.Path(path_type=Path), help="Write the counts there.")
@click.option("--remember", is_flag=True, help=f"Write to {FIRST_TRIES.name} what caught them.")
@click.option("--jobs", type=int, default=0, help="Processes (default: one per core).")
def main(
    lists: bool, only: str | None, seeds: int, minutes: float, path: Path | None, remember: bool, jobs: int
) -> None:
    """Plant bugs one by one, and see that the simulator catches each."""
    if lists:
        _list()
        return
    began = time.monotonic()
    gc.disable()  # as in runs of many
    bugs = [Hunted(name, tries(name, seeds)) for name in (only.split(",") if only else PLANTED)]
    for bug in hunt(bugs, jobs or os.cpu_count() or 1, began + 60 * minutes):
        if bug.broken:
            told = "COULD NOT BE TRIED"
        elif bug.by:
            told = f"{bug.caught!s:>8.60}: {bug.by.splitlines()[0][:100]}"
        else:
            told = f"NOT CAUGHT by {bug.made} tries"
        click.echo(f"{bug.name:46} {told}")
    caught = [bug for bug in bugs if bug.by]
    for bug in bugs:
        if not bug.by and not bug.broken:
            click.echo(f"{bug.name:46} not caught in {bug.made} tries when the time was over")
    result: dict[str, Any] = {
        "planted": len(bugs),
        "caught": len(caught),
        "seconds": round(time.monotonic() - began, 1),
        "bugs": {bug.name: _told(bug) for bug in bugs},
    }
    click.echo(f"{len(caught)} of {len(bugs)} caught in {result['seconds']:.0f} s")
    if path is not None:
        path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    if remember:
        known = _first_tries() | {bug.name: bug.caught for bug in caught if bug.name not in TESTED and bug.caught}
        kept = {name: known[name] for name in PLANTED if name in known}
        FIRST_TRIES.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")
    sys.exit(0 if len(caught) == len(bugs) else 1)


if __name__ == "__main__":
    main()
