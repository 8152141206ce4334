import pytest
from click.testing import CliRunner
from threefs_cli.init_command import planned
from threefs_cli.main import main

from threefs.errors import InvalidArgument


def test_nodes_are_named_one_by_one_or_as_ranges() -> None:
    nodes = planned(["7", "1-3@rack-a", "12@rack-b"])
    assert [(node.node_id, node.domain) for node in nodes] == [
        (7, ""),
        (1, "rack-a"),
        (2, "rack-a"),
        (3, "rack-a"),
        (12, "rack-b"),
    ]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["a"], "is not ID"),
        (["1,2"], "is not ID"),
        (["1@"], "is not ID"),
        (["1@a b"], "is not ID"),
        (["5-3"], "is not a range"),
        (["1-20000"], "is not a range"),
        (["1-3", "2@x"], "node 2 is named twice"),
    ],
)
def test_what_names_no_nodes_is_refused(words: list[str], complaint: str) -> None:
    with pytest.raises(InvalidArgument, match=complaint):
        planned(words)


def test_a_mistake_is_reported_before_anything_is_sent() -> None:
    result = CliRunner().invoke(main, ["init", "--address", "threefs://127.0.0.1:1", "1", "1"])
    assert result.exit_code == 2 and "named twice" in result.output
