"""How quickly a loader goes on from a state, and whether a training that stops and is resized loses samples."""

import tempfile
import time
from pathlib import Path

from threefs_data import Dataset, Loader

from benchmarks.measurements import Measurements
from benchmarks.ml.run_plan import Round
from tests.harness import loader_histories
from tests.harness.synthetic_dataset import PATH, SyntheticFiles

SAMPLES = {"1e3": 10**3, "1e9": 10**9}
_BATCH = 256


def measure(plan: Round, found: Measurements) -> None:
    for name, samples in SAMPLES.items():
        plan.tell(f"resume at {name} samples")
        found.add_number(f"resume_{name}_samples_s", _resume_s(plan.scratch, samples))
    if plan.number == 1:  # pure functions: the next round would find the same
        plan.tell(f"{plan.size.histories} histories")
        results = [loader_histories.run(seed) for seed in range(plan.size.histories)]
        found.add_number("histories", len(results))
        found.add_number("histories_lost", sum(lost for lost, _ in results))
        found.add_number("histories_doubled", sum(doubled for _, doubled in results))


def _resume_s(scratch: Path, samples: int) -> float:
    """From a state in the middle of an epoch to the first batch: the dataset is opened on the way. It is a simulated
    one, whose shards are one sparse file of this machine."""
    with tempfile.TemporaryDirectory(dir=scratch) as root:
        files = SyntheticFiles(root)
        count = files.prepare(samples)
        with Loader(Dataset(files, PATH), global_batch=_BATCH, seed=5) as before:
            state = {**before.state_dict(), "epoch": 3, "consumed": count // 2}
        begin_s = time.monotonic()
        with Loader(Dataset(files, PATH), global_batch=_BATCH, seed=5) as loader:
            loader.load_state_dict(state)
            batch = next(iter(loader))
            seconds = time.monotonic() - begin_s
        assert len(batch) == _BATCH and loader.position.epoch == 3
        return seconds
