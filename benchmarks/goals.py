"""The figures by which a run is judged: ratios of rows, and numbers, each with its goal."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.measurements import Measurements
from benchmarks.peer_rows import LOCAL, THREEFS, row_name
from benchmarks.testbed import REPLICAS


@dataclass(frozen=True, slots=True)
class Goal:
    """`bound` is the least, or with `is_most` the greatest value that counts as reached; None: there is no goal."""

    key: str
    bound: float | None
    value: Callable[[Measurements], float | None]
    is_most: bool = False

    def reached(self, value: float) -> bool | None:
        if self.bound is None:
            return None
        return value <= self.bound if self.is_most else value >= self.bound


def ratio_of_rows(key: str, bound: float | None, above: str, below: str, factor: float = 1.0) -> Goal:
    return Goal(key, bound, lambda found: found.ratio(above, below, factor))


def number_at_most(key: str, most: float, name: str) -> Goal:
    return Goal(key, most, lambda found: found.flat().get(name), is_most=True)


def _measured(key: str, bound: float, *, is_most: bool = False) -> Goal:
    """A number that `make bench-incast` has measured."""
    return Goal(key, bound, lambda found: found.flat().get(key), is_most)


def best_peer(found: Measurements, load: str) -> str | None:
    """The row of the system that does a load best, by its median."""
    others = {THREEFS, LOCAL}
    systems = {name.removeprefix("mount_").removesuffix(f"_{load}"): name for name in found.rows if name.endswith(load)}
    rows = [row for system, row in systems.items() if system not in others and row == row_name(system, load)]
    return max(rows, key=lambda name: found.rows[name].rate, default=None)


def _over_best_peer(key: str, bound: float, *loads: str) -> Goal:
    """Of several loads the one in which threefs does worst."""

    def value(found: Measurements) -> float | None:
        ratios = []
        for load in loads:
            best = best_peer(found, load)
            ratio = None if best is None else found.ratio(row_name(THREEFS, load), best)
            if ratio is None:
                return None
            ratios.append(ratio)
        return min(ratios)

    return Goal(key, bound, value)


def _over_disk(key: str, load: str) -> Goal:
    return ratio_of_rows(key, 0.8, row_name(THREEFS, load), row_name(LOCAL, load))


_READS = [
    goal
    for family in ("tcp", "unix")
    for goal in (
        ratio_of_rows(f"read_1m_over_work_equal_{family}", 0.85, f"read_1m_{family}", f"work_equal_1m_{family}"),
        ratio_of_rows(f"read_1m_over_work_equal_{family}_c", None, f"read_1m_{family}", f"work_equal_1m_{family}_c"),
    )
]
_ROLES = ("manager", "meta", "storage", "mount", "client")

GOALS: Sequence[Goal] = (
    *_READS,
    ratio_of_rows("read_1m_cold_over_fio", 0.85, "read_1m_cold", "fio_read_1m"),
    ratio_of_rows("read_4k_batch_per_s_over_work_equal", 0.5, "read_4k_batch", "work_equal_4k_batch"),
    ratio_of_rows("read_4k_batch_per_s_over_work_equal_c", None, "read_4k_batch", "work_equal_4k_batch_c"),
    # 40,000 reads where the loopback does 400,000 small messages.
    ratio_of_rows("read_4k_depth32_over_small_messages", 0.1, "read_4k_depth32", "small_messages"),
    ratio_of_rows("read_4k_depth32_over_work_equal", None, "read_4k_depth32", "work_equal_4k"),
    ratio_of_rows("read_4k_depth32_over_work_equal_c", None, "read_4k_depth32", "work_equal_4k_c"),
    ratio_of_rows("write_1m_over_fio", 0.8, "write_1m", "fio_write_1m", REPLICAS),
    number_at_most("write_1m_cpu_s_per_gib", 2.5, "write_1m_cpu_s_per_gib"),
    _over_best_peer("overwrite_4k_over_best_peer", 1.0, "rand_write_4k_fsync32"),
    number_at_most("overwrite_4k_written_bytes_per_byte", 8.0, "overwrite_4k_written_bytes_per_byte"),
    _over_best_peer("small_write_over_best_peer", 1.2, "small_write_4k_p1", "small_write_4k_p4"),
    _over_best_peer("small_read_over_best_peer", 1.2, "small_read_4k_p1", "small_read_4k_p4"),
    _over_best_peer("rand_read_4k_j1_over_best_peer", 1.2, "rand_read_4k_j1"),
    _over_best_peer("rand_read_4k_j16_over_best_peer", 1.2, "rand_read_4k_j16"),
    _over_best_peer("seq_write_over_best_peer", 2.0, "seq_write_1m"),
    _over_best_peer("checkpoint_write_over_best_peer", 2.0, "checkpoint_write_p8"),
    _over_best_peer("seq_read_cold_over_best_peer", 1.5, "seq_read_1m_cold"),
    _over_disk("seq_read_cold_over_local_disk", "seq_read_1m_cold"),
    _over_best_peer("rand_read_1m_over_best_peer", 1.5, "rand_read_1m_j4"),
    _over_disk("rand_read_1m_over_local_disk", "rand_read_1m_j4"),
    ratio_of_rows("io500_hard_over_easy_write", 0.4, "io500_hard_write", "io500_easy_write"),
    ratio_of_rows("io500_hard_over_easy_read", 0.6, "io500_hard_read", "io500_easy_read"),
    ratio_of_rows("pgbench_mount_over_local", 300 / 1150, "pgbench_mount", "pgbench_local"),
    _measured("incast_goodput_over_line", 0.9),
    _measured("incast_on_over_off", 1.3),
    _measured("alone_cost_in_time", 0.02, is_most=True),
    _measured("alone_cost_in_cpu", 0.02, is_most=True),
    _measured("grant_of_a_killed_holder_back_s", 1.0, is_most=True),
    _measured("incast_client_peak_over_setting", 1.0, is_most=True),
    _measured("incast_storage_peak_over_setting", 1.0, is_most=True),
    *(number_at_most(f"{role}_peak_over_setting", 1.0, f"{role}_peak_over_setting") for role in _ROLES),
)


def values(found: Measurements, judged: Sequence[Goal] = GOALS) -> dict[str, float]:
    """Those that can be computed of what was measured."""
    computed = {goal.key: goal.value(found) for goal in judged}
    return {key: value for key, value in computed.items() if value is not None}
