"""The loss curves of an undisturbed and of a disturbed training, as a picture."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from examples.moe.job import Step


def draw(path: Path, undisturbed: Sequence[Step], disturbed: Sequence[Step], events: Mapping[int, str]) -> None:
    """`events`: what happened after which step."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "threefs"  # the same picture of the same numbers
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4.2))
    axes.plot([step.number for step in undisturbed], [step.loss for step in undisturbed], "k", lw=4, alpha=0.25)
    axes.plot([], [], "k", lw=4, alpha=0.25, label=f"undisturbed, {undisturbed[0].ranks} ranks")
    colors = {ranks: f"C{number}" for number, ranks in enumerate(sorted({step.ranks for step in disturbed}))}
    for run in runs(disturbed):
        ranks = run[0].ranks
        axes.plot([step.number for step in run], [step.loss for step in run], color=colors[ranks], lw=1.2)
    for ranks, color in colors.items():
        axes.plot([], [], color=color, label=f"disturbed, {ranks} ranks")
    top = axes.get_ylim()[1]
    for step, what in events.items():
        axes.axvline(step, color="0.5", ls=":", lw=1)
        axes.annotate(what, (step, top), (3, -3), textcoords="offset points", rotation=90, va="top", fontsize=8)
    axes.set(xlabel="step", ylabel="loss (nats per byte)")
    axes.legend(loc="upper right")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    pyplot.close(figure)


def runs(steps: Sequence[Step]) -> list[list[Step]]:
    """The steps of each start of the job, which goes back to a checkpoint or has another number of ranks."""
    found: list[list[Step]] = []
    for step in steps:
        if not found or step.number != found[-1][-1].number + 1 or step.ranks != found[-1][-1].ranks:
            found.append([])
        found[-1].append(step)
    return found
