"""How fast checkpoints are saved and loaded, beside the load generator on the same cluster.

    python benchmarks/checkpoint_rates.py --rounds 5 --mib 512 --json checkpoints.json

It starts a cluster with 3 storage processes and 3 copies. In each round, in turns: the load generator writes a file in
blocks of 1 MiB, 16 in flight, and reads it; a process saves a checkpoint of as many bytes, with the host copy, the
verification and the publication, and loads it into memory that it has, as a trainer does. It prints medians in MiB/s,
ratios of the same round, and what share of the time that training waits is the host copy. Needs a machine that does
nothing else.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import threefs_client
from numpy.typing import NDArray
from threefs_checkpoint import CheckpointManager
from threefs_checkpoint.saving import CHUNK_BYTES

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.load_runs import threefs_bench
from benchmarks.testbed import testbed

MIB = 1 << 20
DEPTH = 16
Rates = dict[str, float]


def generator_rate(address: str, direction: str, length: int) -> float:
    """MiB/s of the load generator with large blocks, as in `benchmarks/jobs/checkpoint.fio`."""
    options = ["--name=a", "--ioengine=native", f"--address={address}", f"--rw={direction}", "--bs=1m"]
    sizes = [f"--size={length}", f"--iodepth={DEPTH}", "--directory=/generator"]
    sample = threefs_bench([*options, *sizes])
    return sample.amount / sample.seconds / MIB


def checkpoint_rates(manager: CheckpointManager, step: int, state: dict[str, NDArray[Any]], length: int) -> Rates:
    manager.save(step, state)
    report = manager.wait()
    assert report is not None
    into = {name: np.zeros_like(array) for name, array in state.items()}
    start = time.perf_counter()
    loaded = manager.load(step, into=into)
    load_s = time.perf_counter() - start
    assert all(np.array_equal(loaded.tensors[name], array) for name, array in state.items())
    return {
        "save": length / (report.copy_s + report.background_s) / MIB,
        "load": length / load_s / MIB,
        "copy_over_stall": report.copy_s / report.stall_s,
        "stall_s": report.stall_s,
        "staging_peak_bytes": report.staging_peak_bytes,
    }


def run(rounds: int, length: int) -> list[Rates]:
    tensors = 8
    source = np.random.default_rng(7)
    state: dict[str, NDArray[Any]] = {
        f"layer.{number}": np.frombuffer(source.bytes(length // tensors), np.uint8) for number in range(tensors)
    }
    found = []
    with (
        tempfile.TemporaryDirectory() as scratch,
        testbed(Path(scratch)) as bed,
        threefs_client.connect(bed.address, timeout_s=60.0) as fs,
    ):
        fs.mkdir("/generator")
        manager = CheckpointManager(fs, "/checkpoints", staging_bytes=length + 2 * CHUNK_BYTES)
        for number in range(rounds):
            rates: Rates = {}
            if number % 2:
                rates |= checkpoint_rates(manager, number, state, length)
            for direction in ("write", "read"):
                rates[f"generator_{direction}"] = generator_rate(bed.address, direction, length)
            if not number % 2:
                rates |= checkpoint_rates(manager, number, state, length)
            rates["save_over_generator"] = rates["save"] / rates["generator_write"]
            rates["load_over_generator"] = rates["load"] / rates["generator_read"]
            found.append(rates)
        manager.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    found = run(chosen.rounds, chosen.mib * MIB)
    medians = {name: statistics.median(rates[name] for rates in found) for name in found[0]}
    if chosen.json:
        chosen.json.write_text(json.dumps({"rounds": found, "medians": medians}, indent=2), encoding="utf-8")
    for name, value in medians.items():
        spread = f"{min(rates[name] for rates in found):.3g} to {max(rates[name] for rates in found):.3g}"
        sys.stdout.write(f"{name:>22}  {value:10.4g}   ({spread})\n")


if __name__ == "__main__":
    main()
