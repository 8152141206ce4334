"""The progress bar of `threefs put` and `get`. It stands in a module of its own so that only a terminal pays for the
import of rich."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from threefs_cli import output
from threefs_cli.tree_copy import CopyProgress


class Rate(ProgressColumn):
    """Bytes per second, in the units of the bar's other columns."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(f"{output.size(speed)}/s" if speed else "", style="progress.data.speed")


@contextmanager
def transfer_bar(entries: int, length_bytes: int) -> Iterator[CopyProgress]:
    """A bar for so many files and links with so many bytes together, and the function that moves it."""
    columns = (
        TextColumn("{task.fields[files]}/{task.fields[all]} files"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        Rate(),
        TimeRemainingColumn(),
    )
    count = 0
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("", total=max(1, length_bytes), files=0, all=entries)

        def moved(files: int, size: int) -> None:
            nonlocal count
            count += files
            progress.update(bar, advance=size, files=count)

        yield moved
