import itertools
from pathlib import Path

import pytest

from threefs.env import ports


@pytest.fixture
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What stands for the range from which the kernel gives ports."""
    path = tmp_path / "range"
    monkeypatch.setattr(ports, "_GIVEN_BY_THE_KERNEL", path)
    return path


def test_no_port_is_one_that_the_kernel_gives_to_others(given: Path) -> None:
    """A stopped service found its port taken, by any connection of another program."""
    given.write_text("32768\t60999\n")
    found = list(ports.candidates())
    first = list(itertools.takewhile(lambda port: port != ports.ANY, found))
    assert len(first) >= 10 and max(first) < 32768 and len(set(first)) > 5
    assert set(found[len(first) :]) == {ports.ANY}, "in the end any will do"


@pytest.mark.parametrize("content", ["1024 60999\n", "", "many"])
def test_the_kernel_chooses_where_it_may_give_away_all(given: Path, content: str) -> None:
    given.write_text(content)
    assert set(ports.candidates()) == {ports.ANY}
