import click
import pytest
from threefs_cli.option_types import Size


@pytest.mark.parametrize(("text", "value"), [("0", 0), ("10", 10), ("4k", 4096), ("3GiB", 3 << 30), ("2TB", 2 << 40)])
def test_sizes(text: str, value: int) -> None:
    assert Size().convert(text, None, None) == value


@pytest.mark.parametrize("text", ["", "-1", "1.5g", "g", "10x"])
def test_invalid_sizes_are_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        Size().convert(text, None, None)
