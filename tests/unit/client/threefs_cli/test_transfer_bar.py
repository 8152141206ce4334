import io

from rich.console import Console
from rich.progress import Progress
from threefs_cli.transfer_bar import Rate


def test_the_rate_is_empty_until_something_has_moved() -> None:
    progress = Progress(console=Console(file=io.StringIO()))
    progress.add_task("", total=None)
    assert Rate().render(progress.tasks[0]).plain == ""
    progress.tasks[0].finished_speed = 2 << 20
    assert Rate().render(progress.tasks[0]).plain == "2.0 MiB/s"
