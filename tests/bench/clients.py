"""Figures of the client library over several rounds."""

import statistics
from collections.abc import Sequence

from threefs_bench.metadata_rates import Figure


def median(figures: Sequence[Figure]) -> Figure:
    """Of the same figure in several rounds."""
    first = figures[0]
    return Figure(
        what=first.what,
        in_flight=first.in_flight,
        operations=min(figure.operations for figure in figures),
        per_s=statistics.median(figure.per_s for figure in figures),
        client_us=statistics.median(figure.client_us for figure in figures),
        server_us=statistics.median(figure.server_us for figure in figures),
    )


def table(figures: Sequence[Figure]) -> str:
    lines = ["| operation | calls in flight | per second | CPU of the client | CPU of the service |"]
    lines.append("|---|---:|---:|---:|---:|")
    lines += [
        f"| {one.what} | {one.in_flight} | {one.per_s:,.0f} | {one.client_us:.1f} µs | {one.server_us:.1f} µs |"
        for one in figures
    ]
    return "\n".join(lines) + "\n"
