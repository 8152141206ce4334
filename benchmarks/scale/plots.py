"""The picture of a run of the model."""

from pathlib import Path

from benchmarks import charts
from benchmarks.scale.model import Outcome


def write(found: dict[str, Outcome], directory: Path) -> Path:
    """Raises ImportError without matplotlib."""
    names = list(found)
    axes = charts.axes(2 * len(names), "Reads of the model: rate, and latency (p50 to p99)")
    rates = axes.barh(names, [one.gib_per_s / 1024 for one in found.values()], height=0.6)
    axes.bar_label(rates, [f"{one.p50_ms:.1f} to {one.p99_ms:.1f} ms" for one in found.values()], padding=3)
    axes.set_xlabel("TiB/s")
    axes.margins(x=0.25)
    return charts.save(axes, directory / "scale.png")
