"""The figures by which a cluster that grows is judged."""

from collections.abc import Sequence

from benchmarks.goals import Goal, number_at_most

GOALS: Sequence[Goal] = (
    number_at_most("placement_s", 60.0, "placement_s"),
    number_at_most("dead_disk_spread", 1.1, "dead_disk_spread"),
    number_at_most("manager_core_share", 0.5, "manager_core_share"),
    number_at_most("manager_failures", 0.0, "manager_failures"),
)
