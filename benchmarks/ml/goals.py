"""The figures by which the loader and checkpoints are judged."""

from collections.abc import Sequence

from benchmarks.goals import Goal, number_at_most, ratio_of_rows
from benchmarks.measurements import Measurements
from benchmarks.ml import checkpoint_rows, loader_rows
from benchmarks.ml.loader_rows import LOADER
from benchmarks.ml.run_plan import SAMPLE_SETS

_READERS = {loader_rows.GENERATOR: 0.85, "dataloader": 2.0, "webdataset": 2.0, "mosaic": 2.0}
_OTHER_JOBS = (*checkpoint_rows.NEEDED, *checkpoint_rows.ON_PEERS.values())


def _of_sizes(reader: str, bound: float) -> list[Goal]:
    """Our loader over another reader: at each size of samples, and the least of these, which is judged."""
    key = f"loader_over_{'dataloader_on_mount' if reader == 'dataloader' else reader}"
    pairs = [(f"{LOADER}_{one.name}", f"{reader}_{one.name}") for one in SAMPLE_SETS]
    names = [f"{key}_{one.name}" for one in SAMPLE_SETS]

    def least(found: Measurements) -> float | None:
        ratios = [found.ratio(*pair) for pair in pairs]
        return None if None in ratios else min(ratio for ratio in ratios if ratio is not None)

    return [
        Goal(key, bound, least),
        *(ratio_of_rows(name, None, *pair) for name, pair in zip(names, pairs, strict=True)),
    ]


def _over(job: str, bound: float | None) -> list[Goal]:
    return [
        ratio_of_rows(f"checkpoint_{what}_over_{job}", bound, f"checkpoint_{what}_manager", f"checkpoint_{what}_{job}")
        for what in ("save", "load")
    ]


GOALS: Sequence[Goal] = (
    *(goal for reader, bound in _READERS.items() for goal in _of_sizes(reader, bound)),
    *(number_at_most(f"resume_{samples}_samples_s", 1.0, f"resume_{samples}_samples_s") for samples in ("1e3", "1e9")),
    *(number_at_most(f"histories_{what}", 0.0, f"histories_{what}") for what in ("lost", "doubled")),
    *_over("load_generator", 0.9),
    *(goal for job in _OTHER_JOBS for goal in _over(job, None)),
    number_at_most("checkpoint_stall_over_host_copy", 1.05, "checkpoint_stall_over_host_copy"),
    number_at_most("staging_peak_over_setting", 1.0, "staging_peak_over_setting"),
    number_at_most("killed_saves_wrong", 0.0, "killed_saves_wrong"),
    number_at_most("resharded_loads_wrong", 0.0, "resharded_loads_wrong"),
    number_at_most("read_once_bytes_over_checkpoint", 1.0, "read_once_bytes_over_checkpoint"),
)
