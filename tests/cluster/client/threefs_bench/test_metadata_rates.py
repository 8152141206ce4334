import asyncio
from pathlib import Path

from threefs_bench.metadata_rates import measure_fresh


def test_every_kind_of_call_is_measured(tmp_path: Path) -> None:
    figures = asyncio.run(measure_fresh(tmp_path / "cluster", seconds=0.3, in_flight=8))
    assert [figure.what for figure in figures] == [
        "create",
        "stat",
        "stat, many in a call",
        "create, many in a call",
        "list with attributes",
        "remove",
    ]
    for figure in figures:
        assert figure.operations > 0 and figure.per_s > 0, figure
    assert sum(figure.server_us for figure in figures) > 0
    assert sum(figure.client_us for figure in figures) > 0
