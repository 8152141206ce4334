"""The pictures of a run."""

from pathlib import Path

from benchmarks import charts, goals
from benchmarks.measurements import Measurements
from benchmarks.peer_rows import LOCAL, THREEFS


def write(found: Measurements, directory: Path) -> list[Path]:
    """One file for the figures with a goal, one for the rates of all systems. Raises ImportError."""
    return [path for draw in (_goals, _systems) if (path := draw(found, directory)) is not None]


def _goals(found: Measurements, directory: Path) -> Path | None:
    """How far each figure is: 1 is its goal."""
    values = goals.values(found)
    rated = [goal for goal in goals.GOALS if goal.bound is not None and goal.key in values]
    if not rated:
        return None
    shares = [_share(goal, values[goal.key]) for goal in rated]
    axes = charts.axes(len(rated), "Figures as shares of their goals (1 is reached)")
    colors = ["tab:green" if goal.reached(values[goal.key]) else "tab:orange" for goal in rated]
    axes.barh([goal.key for goal in rated], shares, color=colors)
    axes.axvline(1.0, color="black", linewidth=1)
    axes.set_xscale("log")
    return charts.save(axes, directory / "goals.png")


def _share(goal: goals.Goal, value: float) -> float:
    assert goal.bound is not None, "only those with a goal are drawn"
    return goal.bound / value if goal.is_most else value / goal.bound


def _systems(found: Measurements, directory: Path) -> Path | None:
    """Rates on the mounts of all systems, relative to threefs."""
    prefix = f"mount_{THREEFS}_"
    loads = [name.removeprefix(prefix) for name in found.rows if name.startswith(prefix)]
    ends = [f"_{load}" for load in loads]
    systems = sorted(
        {name[len("mount_") :].removesuffix(end) for name in found.rows for end in ends if name.endswith(end)}
        - {THREEFS}
    )
    if not loads or not systems:
        return None
    axes = charts.axes(len(loads) * len(systems), f"Rates on mounts, divided by those of {THREEFS}")
    height = 0.8 / len(systems)
    for place, system in enumerate(systems):
        rates = [_relative(found, system, load) for load in loads]
        offsets = [number + place * height for number in range(len(loads))]
        label = "local disk" if system == LOCAL else system
        axes.barh(offsets, rates, height=height, label=label)
    axes.set_yticks([number + 0.4 for number in range(len(loads))], loads)
    axes.axvline(1.0, color="black", linewidth=1)
    axes.legend()
    return charts.save(axes, directory / "systems.png")


def _relative(found: Measurements, system: str, load: str) -> float:
    name = f"mount_{system}_{load}"
    return found.rows[name].rate / found.rows[f"mount_{THREEFS}_{load}"].rate if name in found.rows else 0.0
