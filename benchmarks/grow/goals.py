"""The figures by which a cluster that grows is judged."""

from collections.abc import Sequence

from benchmarks.goals import Goal, number_at_most

GOALS: Sequence[Goal] = (
    number_at_most("placement_s", 60.0, "placement_s"),
    number_at_most("dead_disk_spread", 1.1, "dead_disk_spread"),
    number_at_most("manager_core_share", 0.5, "manager_core_share"),
    number_at_most("manager_failures", 0.0, "manager_failures"),
    number_at_most("manager_leases_missing", 0.0, "manager_leases_missing"),
    number_at_most("errors", 0.0, "errors"),
    number_at_most("fsck_unclean", 0.0, "fsck_unclean"),
    number_at_most("moved_over_minimum", 1.1, "moved_over_minimum"),
    number_at_most("p99_over_idle", 2.0, "p99_over_idle"),
    Goal("seconds", None, lambda found: found.flat().get("seconds")),
)
