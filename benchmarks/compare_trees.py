"""Two trees of the project measured in turns, in one run: what has become slower?

    git worktree add ../old COMMIT && make -C ../old venv
    python -m benchmarks.compare_trees ../old . --parts client,mount,smoke --rounds 5 --json compared.json

Each tree measures itself by its own `make bench-meta` and `make bench-smoke`, one round at a time. Which one begins
changes from round to round, so both see the same machine. The table has the medians of what both trees measure.
"""

import json
import statistics
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

PARTS = ("client", "mount", "smoke")
#: A row that has lost more is marked.
TOLERANCE = 0.05
#: Of smoke: what the machine can do, and counts.
_NOT_OURS = ("raw_", "disk_", "rounds", "replicas", "read_4k_batches_in_flight")

Rows = dict[str, float]


def rows_of(part: str, found: Any) -> Rows:
    """The rates of one round by name, and CPU times, whose names contain "cpu"."""
    if part == "client":
        named = [(f"{row['what']}, {row['in_flight']} in flight", row) for row in found["client"]]
        rates = {f"client: {name}": row["per_s"] for name, row in named}
        return rates | {f"client: {name}, cpu µs": row["client_us"] + row["server_us"] for name, row in named}
    if part == "mount":
        medians: Mapping[str, Any] = found["mount"].get("medians", {}).get("threefs", {})
        rates = {f"mount: {name}": row["per_s"] for name, row in medians.items()}
        return rates | {f"mount: {name}, cpu s per 1000": row["cpu_s_per_1000"] for name, row in medians.items()}
    return {f"smoke: {name}": value for name, value in found.items() if not name.startswith(_NOT_OURS)}


def command(part: str, file: Path) -> list[str]:
    if part == "smoke":
        return ["make", "--silent", "bench-smoke", f"JSON={file}"]
    return ["make", "--silent", "bench-meta", f"ONLY={part}", "ROUNDS=1", f"JSON={file}"]


def measure(tree: Path, part: str) -> Rows:
    """One round. Raises CalledProcessError."""
    with tempfile.TemporaryDirectory(prefix="threefs-compare-") as scratch:
        file = Path(scratch) / "found.json"
        subprocess.run(command(part, file), cwd=tree, check=True, stdout=subprocess.DEVNULL)
        return rows_of(part, json.loads(file.read_text(encoding="utf-8")))


def medians(rounds: Iterable[Rows]) -> Rows:
    values: dict[str, list[float]] = {}
    for rows in rounds:
        for name, value in rows.items():
            values.setdefault(name, []).append(value)
    return {name: statistics.median(found) for name, found in values.items()}


def change(name: str, old: float, new: float) -> float:
    """How much better the new tree is: -0.1 for a rate that has lost a tenth, or a CPU time that has grown by one."""
    if not old or not new:
        return 0.0
    return old / new - 1 if "cpu" in name else new / old - 1


def table(old: Rows, new: Rows) -> str:
    lines = ["| measurement | old | new | better by |", "|---|---:|---:|---:|"]
    for name in (name for name in old if name in new):
        gained = change(name, old[name], new[name])
        mark = " **slower**" if gained < -TOLERANCE else ""
        lines.append(f"| {name} | {old[name]:,.4g} | {new[name]:,.4g} | {gained:+.1%}{mark} |")
    alone = sorted(set(old) ^ set(new))
    return "\n".join(lines) + "\n" + (f"\nMeasured by one tree alone: {', '.join(alone)}\n" if alone else "")


def compare(trees: Sequence[Path], parts: Sequence[str], rounds: int) -> list[list[Rows]]:
    """The rounds of each tree."""
    found: list[list[Rows]] = [[] for _ in trees]
    for number in range(rounds):
        for part in parts:
            order = range(len(trees)) if number % 2 == 0 else reversed(range(len(trees)))
            for at in order:
                click.echo(f"round {number + 1} of {rounds}: {part} of {trees[at]}", err=True)
                found[at].append(measure(trees[at], part))
    return found


@click.command()
@click.argument("old", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("new", type=click.Path(path_type=Path, exists=True, file_okay=False), default=Path())
@click.option("--parts", default=",".join(PARTS), show_default=True, help="What is measured, with commas between.")
@click.option("--rounds", type=click.IntRange(1, 100), default=5, show_default=True, help="Medians are of so many.")
@click.option("--json", "file", type=click.Path(path_type=Path, dir_okay=False), help="Write all rounds there.")
def main(old: Path, new: Path, parts: str, rounds: int, file: Path | None) -> None:
    """Measure tree OLD and tree NEW in turns. Prints a Markdown table."""
    wanted = [part for part in parts.split(",") if part]
    if unknown := [part for part in wanted if part not in PARTS]:
        raise click.BadParameter(f"{unknown[0]} is none of {', '.join(PARTS)}")
    found = compare((old, new), wanted, rounds)
    if file is not None:
        file.write_text(json.dumps({"old": found[0], "new": found[1]}, indent=1) + "\n", encoding="utf-8")
    click.echo(table(medians(found[0]), medians(found[1])))


if __name__ == "__main__":
    main()
