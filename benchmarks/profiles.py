"""Where the processor time of a load goes: to the kernel, to libraries, and to which functions of threefs.

    python -m benchmarks.profiles overwrite_4k --seconds 10

It starts the cluster of `make bench`, mounted if the load needs that, runs the load, and samples meanwhile. perf says
which process runs what: a system call, a library, or the interpreter. py-spy says which function the interpreter runs:
a sample counts for the innermost frame that lies in threefs. Programs that put load on a mount are no part of threefs,
and not in the table. It needs perf and root.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import database_rows, load_runs, writers
from benchmarks.measurements import GIB, MIB
from benchmarks.testbed import Testbed, drop_caches, testbed

ROOT = Path(__file__).resolve().parents[1]
_TREES = tuple(f"{ROOT}/{tree}/" for tree in ("threefs", "client", "services"))
_RUNNING_PER_S, _FUNCTIONS_PER_S = 499, 100
_LEAST_SHARE = 0.02  # of a line of the table
_MARGIN_S = 4.0  # of a load, before and behind the samples
#: A load has begun when the services use this share of a core in so many looks.
_BUSY_SHARE, _BUSY_TIMES, _POLL_S, _MOST_START_S = 0.1, 4, 0.25, 60.0
_KERNEL, _CALL = "[kernel.kallsyms]", "__x64_sys_"
_ENTRIES = ("x64_sys_call", "do_syscall_64")  # what calls the function of a system call
PYTHON, CRC32C = "Python", "CRC32C"
_INTERPRETED = (PYTHON, CRC32C)  # checksums are computed under the interpreter's lock, so py-spy sees their callers
#: Part of the name of a library: what it is to the reader.
_LIBRARIES = {
    "python3": PYTHON,
    "cpython": PYTHON,  # extension modules are what the function that calls them does
    "crc32c": CRC32C,
    "rocksdict": "RocksDB",
    "libc.so": "libc: memory, locks",
}
_FILE_BYTES = 256 * MIB
_WARM_PASSES = 3
_SMALL_BYTES, _SMALL_FILES = 4096, 3000


@dataclass(frozen=True, slots=True)
class Work:
    """What a load has done."""

    amount: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Profiled:
    """`prepare` runs before, `run` for at least so many seconds if the load has no end of its own; it notes the process
    that is the client, if that is a part of threefs. `unit` is what the CPU time is divided by."""

    prepare: Callable[[Testbed], None]
    run: Callable[[Testbed, float, list[int]], Work]
    unit: float
    unit_name: str
    mount: bool
    is_timed: bool


@dataclass
class Samples:
    """Of one role: samples of perf by what runs, and of py-spy by function."""

    running: Counter[str] = field(default_factory=Counter)
    functions: Counter[str] = field(default_factory=Counter)

    def parts(self) -> dict[str, float]:
        """Samples of perf by what runs, those of the interpreter divided among the functions."""
        found: dict[str, float] = {name: count for name, count in self.running.items() if name not in _INTERPRETED}
        count, total = sum(self.running[name] for name in _INTERPRETED), sum(self.functions.values())
        for name, samples in self.functions.items():
            found[name] = count * samples / total
        if not total:
            found[PYTHON] = count
        return found


def running_of(frames: Sequence[tuple[str, str]]) -> str:
    """What a sample of perf is in: `frames` are (symbol, library), innermost first."""
    library = frames[0][1]
    if library == _KERNEL:
        symbols = [name for name, where in frames if where == _KERNEL]
        if any(name.startswith("fuse_dev") for name in symbols):
            return "kernel: requests and answers of FUSE"
        if any(name.startswith("asm_exc") for name in symbols):
            return "kernel: page faults"
        entry = next((at for at, name in enumerate(symbols) if name in _ENTRIES), 0)
        return f"kernel: {symbols[entry - 1].removeprefix(_CALL)}" if entry else "kernel: interrupts"
    name = Path(library).name
    return next((label for part, label in _LIBRARIES.items() if part in name), f"library: {name}")


def read_running(lines: Iterable[str]) -> dict[int, Counter[str]]:
    """Of `perf script`: the number of the process, then a line for each frame, then an empty one."""
    found: dict[int, Counter[str]] = {}
    process = 0
    frames: list[tuple[str, str]] = []
    for line in lines:
        words = line.strip().split(maxsplit=2)
        if len(words) == 1:
            process, frames = int(words[0]), []
        elif words:
            _, symbol, library = words
            frames.append((symbol, library.strip("()")))
        elif frames:
            found.setdefault(process, Counter())[running_of(frames)] += 1
            frames = []
    return found


def function_of(stack: str) -> str:
    """The innermost frame of threefs; of a stack without one, the outermost frame."""
    frames = stack.split(";")
    for frame in reversed(frames):
        function, _, path = frame.rstrip(")").partition(" (")
        if path.startswith(_TREES):
            return f"`{function}` of `{path.removeprefix(f'{ROOT}/').rpartition(':')[0] or path}`"
    return f"`{frames[0].partition(' (')[0]}` of a library"


def read_functions(lines: Iterable[str]) -> Counter[str]:
    """Of py-spy's raw format: frames with semicolons between, outermost first, and how often."""
    found: Counter[str] = Counter()
    for line in lines:
        stack, _, count = line.rstrip().rpartition(" ")
        if stack and count.isdecimal():  # the processes run on while they are read, so a sample may be torn
            found[function_of(stack)] += int(count)
    return found


# ---- loads ----


def _native(bed: Testbed, options: Sequence[str], clients: list[int]) -> Work:
    written = bed.place / "report.json"
    command = [sys.executable, "-m", "threefs_bench.load.command", "--eta=never", "--json", f"--output={written}"]
    command += ["--name=load", f"--address={bed.address}", "--directory=/bench", "--filename=file", *options]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as job:
        clients.append(job.pid)
        _, complaint = job.communicate()
    if job.returncode:
        raise OSError(f"{' '.join(command)}: {complaint.strip()}")
    report = json.loads(written.read_text(encoding="utf-8"))
    side = max((report["jobs"][0][name] for name in ("read", "write")), key=lambda one: one["io_bytes"])
    return Work(side["io_bytes"], side["runtime"] / 1000)


def _descendants(process: int) -> list[int]:
    try:
        text = Path(f"/proc/{process}/task/{process}/children").read_text()
    except OSError:  # it has ended
        return []
    return [process, *(each for child in text.split() for each in _descendants(int(child)))]


def _on_client(*options: str, cold: bool = False) -> Profiled:
    """`cold`: all blocks once, from the disk."""
    block = _block_bytes(options)

    def prepare(bed: Testbed) -> None:
        whole = [f"--bs={MIB}", "--iodepth=8", f"--size={_FILE_BYTES}"]
        _native(bed, ["--rw=write", *whole], [])
        if cold:
            drop_caches()
        elif "--rw=write" not in options:
            for _ in range(_WARM_PASSES):  # each replica has a part of the reads
                _native(bed, ["--rw=read", *whole], [])

    def run(bed: Testbed, seconds: float, clients: list[int]) -> Work:
        timed = [] if cold else ["--time_based", f"--runtime={seconds:g}"]
        return _native(bed, [*options, f"--size={_FILE_BYTES}", *timed], clients)

    return Profiled(prepare, run, *_unit(block), mount=False, is_timed=not cold)


def _on_mount(*options: str) -> Profiled:
    """Blocks of one file, by fio if it is installed."""
    whole = ["--name=load", "--filename=file", f"--size={_FILE_BYTES}"]

    def prepare(bed: Testbed) -> None:
        load_runs.posix_job(_point(bed), [*whole, "--rw=write", "--bs=1m", "--fsync=64"])
        drop_caches()

    def run(bed: Testbed, seconds: float, clients: list[int]) -> Work:
        timed = ["--time_based", f"--runtime={seconds:g}", "--group_reporting"]
        sample = load_runs.posix_job(_point(bed), [*whole, *options, *timed])
        return Work(sample.amount, sample.seconds)

    return Profiled(prepare, run, *_unit(_block_bytes(options)), mount=True, is_timed=True)


def _block_bytes(options: Sequence[str]) -> int:
    return int(next(one for one in options if one.startswith("--bs=")).removeprefix("--bs="))


def _unit(block: int) -> tuple[float, str]:
    return (GIB, "GiB") if block >= MIB else (1000 * block, "1,000 operations")


def _stream(*, reading: bool) -> Profiled:
    """1 MiB blocks of one file, written with an fsync at the end, or read from the disk."""

    def write(bed: Testbed) -> None:
        block = random.Random(1).randbytes(MIB)
        with open(_point(bed) / "stream", "wb", buffering=0) as file:
            for _ in range(_FILE_BYTES // MIB):
                file.write(block)
            os.fsync(file.fileno())

    def prepare(bed: Testbed) -> None:
        if reading:
            write(bed)
        drop_caches()

    def run(bed: Testbed, seconds: float, clients: list[int]) -> Work:
        began = time.monotonic()
        if reading:
            with open(_point(bed) / "stream", "rb", buffering=0) as file:
                while file.read(MIB):
                    pass
        else:
            write(bed)
        return Work(_FILE_BYTES, time.monotonic() - began)

    return Profiled(prepare, run, GIB, "GiB", mount=True, is_timed=False)


def _small_files(*, reading: bool) -> Profiled:
    """One process creates, writes and closes files of 4 KiB, or opens and reads them in random order, from the disk."""

    def path(bed: Testbed, number: int) -> Path:
        return _point(bed) / f"small.{number}"

    def put(bed: Testbed, number: int) -> None:
        with open(path(bed, number), "xb", buffering=0) as file:
            file.write(bytes(_SMALL_BYTES))

    def prepare(bed: Testbed) -> None:
        for number in range(_SMALL_FILES) if reading else ():
            put(bed, number)
        drop_caches()

    def run(bed: Testbed, seconds: float, clients: list[int]) -> Work:
        numbers = list(range(_SMALL_FILES))
        random.Random(1).shuffle(numbers)
        began = time.monotonic()
        for number in numbers:
            if reading:
                path(bed, number).read_bytes()
            else:
                put(bed, number)
        return Work(_SMALL_FILES, time.monotonic() - began)

    return Profiled(prepare, run, 1000, "1,000 files", mount=True, is_timed=False)


def _writers(shape: writers.Shape, *, reading: bool) -> Profiled:
    """Four writers, with a file each or in turns in one, as IO500 has them; or four readers of that, from the disk."""

    def run(bed: Testbed, seconds: float, clients: list[int]) -> Work:
        return write(bed, reading=reading)

    def write(bed: Testbed, *, reading: bool) -> Work:
        sample = writers.run(_point(bed), shape, _FILE_BYTES // writers.PROCESSES, reading=reading, servers=bed.meter)
        return Work(sample.amount, sample.seconds)

    def prepare(bed: Testbed) -> None:
        if reading:
            write(bed, reading=False)
        drop_caches()

    return Profiled(prepare, run, GIB, "GiB", mount=True, is_timed=False)


def _transactions() -> Profiled:
    """PostgreSQL's pgbench with its data on the mount; its own processes are not in the table."""

    def run(bed: Testbed, seconds: float, clients: list[int]) -> Work:
        sample = database_rows.transactions_on(_point(bed), round(seconds))
        return Work(sample.amount, sample.seconds)

    return Profiled(lambda bed: None, run, 1000, "1,000 transactions", mount=True, is_timed=True)


def _point(bed: Testbed) -> Path:
    assert bed.point is not None, "the load needs a mount"
    return bed.point


_BLOCK = "--bs=4096"
LOADS = {
    "read_1m": _on_client("--rw=read", f"--bs={MIB}", "--batch=8", "--iodepth=16"),
    "read_1m_tcp": _on_client("--rw=read", f"--bs={MIB}", "--batch=8", "--iodepth=16", "--unix_sockets=0"),
    "read_1m_cold": _on_client("--rw=read", f"--bs={MIB}", "--batch=8", "--iodepth=16", cold=True),
    "read_4k_batch": _on_client("--rw=randread", _BLOCK, "--batch=256", "--iodepth=1024"),
    "read_4k_depth32": _on_client("--rw=randread", _BLOCK, "--iodepth=32"),
    "write_1m": _on_client("--rw=write", f"--bs={MIB}", "--batch=4", "--iodepth=16"),
    "overwrite_4k": _on_mount("--rw=randwrite", _BLOCK, "--fsync=32"),
    "rand_read_4k_j1": _on_mount("--rw=randread", _BLOCK, "--direct=1"),
    "rand_read_4k_j16": _on_mount("--rw=randread", _BLOCK, "--direct=1", "--numjobs=16"),
    "rand_read_1m_j4": _on_mount("--rw=randread", f"--bs={MIB}", "--numjobs=4"),
    "small_write": _small_files(reading=False),
    "small_read": _small_files(reading=True),
    "seq_write": _stream(reading=False),
    "seq_read_cold": _stream(reading=True),
    "io500_easy_write": _writers(writers.EASY, reading=False),
    "io500_hard_write": _writers(writers.HARD, reading=False),
    "io500_hard_read": _writers(writers.HARD, reading=True),
    "pgbench": _transactions(),
}


# ---- profile ----


def _spy(process: int, raw: Path) -> list[str]:
    program = str(Path(sys.executable).with_name("py-spy"))
    shape = ["--gil", "--nonblocking", "-F", "--full-filenames", "-f", "raw", "-r", str(_FUNCTIONS_PER_S)]
    return [program, "record", *shape, "-o", str(raw), "--duration", "3600", "--pid", str(process)]


def measure(load: Profiled, seconds: float, scratch: Path) -> tuple[Work, float, dict[str, Samples]]:
    """What was done, how many cores all processes used, and the samples of each role."""
    with testbed(scratch, mount=load.mount) as bed, ThreadPoolExecutor(1) as threads:
        load.prepare(bed)
        clients: list[int] = []
        job = threads.submit(load.run, bed, seconds + _MARGIN_S, clients)
        if load.is_timed:
            _await_load(bed)
        processes = dict(bed.processes)
        for client in clients:
            processes.update((f"client-{child}", child) for child in _descendants(client))
        with _sampled(processes, scratch):
            meter, began = load_runs.CpuMeter(list(processes.values())), time.monotonic()
            before_s = meter.now_s()
            wait([job], seconds if load.is_timed else None)
            cores = (meter.now_s() - before_s) / (time.monotonic() - began)
        work = job.result()
    found: dict[str, Samples] = {}
    running = _running(scratch)
    for name, process in processes.items():
        role = found.setdefault(name.partition("-")[0], Samples())
        role.running.update(running.get(process, {}))
        raw = scratch / f"{name}.raw"
        role.functions.update(read_functions(raw.read_text(encoding="utf-8").splitlines()) if raw.exists() else {})
    return work, cores, found


def _await_load(bed: Testbed) -> None:
    """Until the services have something to do."""
    end = time.monotonic() + _MOST_START_S
    before_s, busy = bed.meter.now_s(), 0
    while busy < _BUSY_TIMES and time.monotonic() < end:
        time.sleep(_POLL_S)
        now_s = bed.meter.now_s()
        busy = busy + 1 if now_s - before_s > _POLL_S * _BUSY_SHARE else 0
        before_s = now_s


@contextmanager
def _sampled(processes: dict[str, int], scratch: Path) -> Iterator[None]:
    """Samples of all processes are taken, by perf into `perf.data`, and by py-spy into NAME.raw."""
    commands = [["perf", "record", "-a", "-g", "-e", "cpu-clock", "-F", str(_RUNNING_PER_S), "-o", "perf.data"]]
    commands += [_spy(process, scratch / f"{name}.raw") for name, process in processes.items()]
    samplers = [
        subprocess.Popen(each, cwd=scratch, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for each in commands
    ]
    try:
        yield
    finally:
        for sampler in samplers:
            sampler.send_signal(signal.SIGINT)  # it writes what it has
        for sampler in samplers:
            sampler.wait()


def _running(scratch: Path) -> dict[int, Counter[str]]:
    script = ["perf", "script", "-i", "perf.data", "-F", "pid,ip,sym,dso"]
    with subprocess.Popen(script, cwd=scratch, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as listed:
        assert listed.stdout is not None
        return read_running(listed.stdout)


def table(load: Profiled, work: Work, cores: float, found: dict[str, Samples]) -> str:
    whole = sum(sum(one.running.values()) for one in found.values())
    units_per_s = work.amount / load.unit / work.seconds
    lines = [
        f"{units_per_s:.4g} times {load.unit_name} per second, each {cores / units_per_s:.3g} CPU s; {cores:.2f} cores",
        "",
        "| share | process | where |",
        "|---:|---|---|",
    ]
    rows = [(count / whole, role, name) for role, one in found.items() for name, count in one.parts().items()]
    shown = sorted((row for row in rows if row[0] >= _LEAST_SHARE), reverse=True)
    lines += [f"| {share:.1%} | {role} | {where} |" for share, role, where in shown]
    lines.append(f"| {1 - sum(row[0] for row in shown):.1%} | | the rest, each below {_LEAST_SHARE:.0%} |")
    lines += ["", "| process | share | kernel | CRC32C | RocksDB | Python |", "|---|---:|---:|---:|---:|---:|"]
    for role, one in found.items():
        own = sum(one.running.values())
        kernel = sum(count for name, count in one.running.items() if name.startswith("kernel"))
        parts = [kernel, one.running[CRC32C], one.running["RocksDB"], one.running[PYTHON]]
        lines.append(f"| {role} | {own / whole:.0%} | {' | '.join(f'{part / whole:.0%}' for part in parts)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("loads", nargs="+", choices=list(LOADS), metavar="LOAD", help=", ".join(LOADS))
    parser.add_argument("--seconds", type=float, default=10.0, help="of a load that has no end of its own")
    parser.add_argument("--directory", type=Path, help="on the disk to measure; by default a temporary one")
    options = parser.parse_args()
    for name in options.loads:
        with tempfile.TemporaryDirectory(prefix="threefs-profile-", dir=options.directory) as scratch:
            place = Path(scratch)
            place.chmod(0o711)
            measured = measure(LOADS[name], options.seconds, place)
        print(f"## {name}\n\n{table(LOADS[name], *measured)}\n", flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # processes and mounts go away then too
    main()
