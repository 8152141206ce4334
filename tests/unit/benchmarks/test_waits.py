from benchmarks import waits
from tests.harness.trace_collector import Collected


def span(name: str, number: int, parent: int | None, seconds: float) -> Collected:
    above = b"" if parent is None else bytes([parent])
    return Collected(name, b"t", bytes([number]), above, "p", "", {}, (), False, seconds)


SPANS = [
    span("persist", 3, 2, 0.001),
    span("client write", 1, None, 0.004),
    span("write", 2, 1, 0.003),
    span("write", 4, 1, 0.005),
    span("persist", 5, 9, 0.001),
]


def test_spans_are_summed_by_their_path_also_when_one_above_did_not_arrive() -> None:
    assert waits.by_path(SPANS) == {
        "client write / write / persist": [0.001],
        "client write": [0.004],
        "client write / write": [0.003, 0.005],
        "persist": [0.001],
    }


def test_the_table_has_the_program_first_and_leaves_rare_paths_out() -> None:
    lines = waits.table("commit", [0.006, 0.008] * 15, waits.by_path(SPANS)).splitlines()
    assert lines[2:] == ["| commit | 30 | 7.00 | 7.00 |", "| client write / write | 2 | 4.00 | 4.00 |"]
