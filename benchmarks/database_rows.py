"""PostgreSQL's own benchmark with its data on the mount, in turns with a local disk. Only where it is installed."""

import re
import subprocess
import tempfile
import time
from pathlib import Path

import psycopg
from threefs_bench.cost_meter import busy_s

from benchmarks.measurements import LeftOutError, Load, Measurements, Sample
from benchmarks.run_plan import Round
from benchmarks.testbed import testbed
from tests.harness import postgres

_CLIENTS = 4
_TIMEOUT_S = 600.0
_CHECK = "the sums of the tables agree"
ON_MOUNT = Load("pgbench_mount", f"pgbench, {_CLIENTS} clients, data on the mount; CPU of the machine", _CHECK, False)
ON_DISK = Load(
    "pgbench_local", f"pgbench, {_CLIENTS} clients, data on the local disk; CPU of the machine", _CHECK, False
)


def measure(plan: Round, found: Measurements) -> None:
    program = _pgbench()
    with testbed(plan.scratch, mount=True) as bed, tempfile.TemporaryDirectory(dir=plan.scratch) as local:
        assert bed.point is not None
        Path(local).chmod(0o755)
        places = [(ON_MOUNT, bed.point), (ON_DISK, Path(local))]
        for load, place in places if plan.number % 2 else reversed(places):
            plan.tell(load.name)
            found.add(load, _transactions(program, place, plan.size.transactions_s))
        bed.note_memory(found)


def transactions_on(place: Path, seconds: int) -> Sample:
    """Transactions of a new database in that directory. Raises LeftOutError, OSError."""
    return _transactions(_pgbench(), place, seconds)


def _pgbench() -> Path:
    if reason := postgres.lacking():
        raise LeftOutError(reason)
    found = postgres.binary("pgbench")
    if found is None:
        raise LeftOutError("pgbench is not installed")
    return found


def _transactions(program: Path, place: Path, seconds: int) -> Sample:
    with postgres.PostgresServer(fsync=True, place=place) as server:
        _run(program, "--initialize", "--quiet", server.url)
        before_s, begin_s = busy_s(), time.monotonic()
        printed = _run(program, f"--client={_CLIENTS}", f"--time={seconds}", "--no-vacuum", server.url)
        elapsed_s, used_s = time.monotonic() - begin_s, busy_s() - before_s
        _check_sums(server.url)
    done = re.search(r"transactions actually processed: (\d+)", printed)
    if done is None:
        raise OSError(f"pgbench does not say how many transactions it did: {printed}")
    return Sample(int(done[1]), elapsed_s, used_s)


def _check_sums(url: str) -> None:
    """Each transaction changes an account, a teller and a branch by the same amount, and notes it."""
    sums = "(SELECT sum({}) FROM {})"
    tables = (("abalance", "accounts"), ("tbalance", "tellers"), ("bbalance", "branches"), ("delta", "history"))
    parts = [sums.format(column, f"pgbench_{table}") for column, table in tables]
    with psycopg.connect(url) as connection:
        row = connection.execute(f"SELECT {', '.join(parts)}".encode()).fetchone()
    if row is None or len(set(row)) != 1:
        raise OSError(f"the sums of pgbench's tables are {row}, and should be equal")


def _run(program: Path, *options: str) -> str:
    done = subprocess.run([program, *options], capture_output=True, text=True, timeout=_TIMEOUT_S)
    if done.returncode:
        raise OSError(f"pgbench: {done.stderr.strip()}")
    return done.stdout
