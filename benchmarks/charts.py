"""Bar charts by matplotlib, which is an optional dependency (the extra `bench`)."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_INCHES_PER_BAR = 0.32
_WIDTH_INCHES = 9.0


def axes(bars: int, title: str) -> "Axes":
    """For horizontal bars, the first one above."""
    from matplotlib.figure import Figure  # without pyplot: no window, nothing global

    figure = Figure(figsize=(_WIDTH_INCHES, 1.2 + bars * _INCHES_PER_BAR), layout="constrained")
    made = figure.add_subplot()
    made.set_title(title)
    made.invert_yaxis()
    return made


def save(made: "Axes", path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure = made.get_figure(root=True)
    assert figure is not None, "axes() has made it"
    figure.savefig(path, dpi=120)
    return path
