"""Where one operation on a mount waits, by the clock and not by the processor.

    python -m benchmarks.waits commit small_write pgbench --operations 400

It starts the cluster of `make bench`, mounted, with a trace of every write, and makes one operation after the other.
The table has what the program waited, and below it each span of the traces of its writes, by the path of names from
the client on. Spans cost time themselves, so a run without them tells what the program waits otherwise.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks import database_rows
from benchmarks.testbed import Testbed, drop_caches, testbed
from tests.harness.trace_collector import Collected, TraceCollector
from threefs.telemetry.tracing import TRACE_VARIABLE

_LOG_BYTES, _PAGE_BYTES, _SMALL_BYTES = 16 << 20, 8192, 4096
_EXPORTED_S = 3.0  # after which all spans have arrived
_PGBENCH_S = 15
Waits = dict[str, list[float]]


def _timed(count: int, operation: Callable[[int], None]) -> list[float]:
    took = []
    for number in range(count):
        began = time.perf_counter()
        operation(number)
        took.append(time.perf_counter() - began)
    return took


def commit(point: Path, count: int) -> list[float]:
    """As a database does: the next page of a log of fixed length, and fdatasync."""
    page = os.urandom(_PAGE_BYTES)
    with open(point / "log", "xb", buffering=0) as log:
        log.write(bytes(_LOG_BYTES))
        os.fsync(log.fileno())

        def append(number: int) -> None:
            os.pwrite(log.fileno(), page, number * _PAGE_BYTES % _LOG_BYTES)
            os.fdatasync(log.fileno())

        return _timed(count, append)


def small_write(point: Path, count: int) -> list[float]:
    """A new file of 4 KiB is created, written and closed."""

    def put(number: int) -> None:
        with open(point / f"small.{number}", "xb", buffering=0) as file:
            file.write(bytes(_SMALL_BYTES))

    return _timed(count, put)


def small_read(point: Path, count: int) -> list[float]:
    """A file of 4 KiB is opened and read, from the disk."""

    def get(number: int) -> None:
        (point / f"small.{number}").read_bytes()

    small_write(point, count)
    drop_caches()
    return _timed(count, get)


def pgbench(point: Path, count: int) -> list[float]:
    """Transactions of four clients. They wait for each other, as each changes the one row of the branch."""
    sample = database_rows.transactions_on(point, _PGBENCH_S)
    return [sample.seconds / sample.amount] * int(sample.amount)


LOADS = {load.__name__: load for load in (commit, small_write, small_read, pgbench)}


def by_path(spans: Sequence[Collected]) -> Waits:
    """The seconds of spans by the names of the spans around them and their own: "client write / write / persist"."""
    known = {span.span: span for span in spans}
    found: Waits = defaultdict(list)
    for span in spans:
        names, above = [span.name], known.get(span.parent)
        while above is not None:
            names.append(above.name)
            above = known.get(above.parent)
        found[" / ".join(reversed(names))].append(span.seconds)
    return found


def table(name: str, took: Sequence[float], waits: Waits) -> str:
    """Rows of rare paths, below a twentieth of the operations, are left out."""
    rows = {name: list(took), **{path: waits[path] for path in sorted(waits) if 20 * len(waits[path]) >= len(took)}}
    lines = ["| wait | times | median ms | mean ms |", "|---|---:|---:|---:|"]
    for path, seconds in rows.items():
        median, mean = 1000 * statistics.median(seconds), 1000 * statistics.fmean(seconds)
        lines.append(f"| {path} | {len(seconds)} | {median:.2f} | {mean:.2f} |")
    return "\n".join(lines)


@contextmanager
def _traced(collector: TraceCollector) -> Iterator[None]:
    os.environ[TRACE_VARIABLE] = collector.endpoint
    try:
        yield
    finally:
        del os.environ[TRACE_VARIABLE]


def measure(name: str, count: int, scratch: Path) -> str:
    """The table of a load: what the program waited without spans, then the spans of a run with them."""

    def run() -> list[float]:
        with testbed(scratch, mount=True) as bed:
            return LOADS[name](_point(bed), count)

    took = run()
    with TraceCollector() as collector:
        with _traced(collector):
            run()
        time.sleep(_EXPORTED_S)
        return table(name, took, by_path(collector.spans))


def _point(bed: Testbed) -> Path:
    assert bed.point is not None, "the cluster is mounted"
    return bed.point


def main() -> None:
    words = argparse.ArgumentParser(prog="python -m benchmarks.waits", description="Where an operation waits.")
    words.add_argument("loads", nargs="+", choices=LOADS)
    words.add_argument("--operations", type=int, default=400)
    chosen = words.parse_args()
    with tempfile.TemporaryDirectory(prefix="threefs-waits-", dir="/var/tmp") as directory:
        Path(directory).chmod(0o711)  # a database does not run as root
        for name in chosen.loads:
            print(f"{measure(name, chosen.operations, Path(directory))}\n", flush=True)


if __name__ == "__main__":
    main()
