"""`test_cluster_health.py` produces each reason."""

from tests.harness.cluster_status import DAY_MS, GIB, found_in, sound
from threefs.health.verdict import Severity


def test_a_scrub_is_late_beyond_its_bound_only() -> None:
    for unscrubbed, interval, late in ((14, 7, False), (15, 7, True), (1000, 0, False)):
        status = sound()
        status.nodes[1].targets[1].unscrubbed_ms = unscrubbed * DAY_MS
        status.nodes[1].targets[1].scrub_interval_ms = interval * DAY_MS
        assert ["scrub_late" for _ in range(late)] == [reason.code for reason in found_in(status)]
    status.nodes[1].targets[0].unscrubbed_ms = 30 * DAY_MS
    status.nodes[1].targets[1].unscrubbed_ms = 20 * DAY_MS
    for found in status.nodes[1].targets:
        found.scrub_interval_ms = 7 * DAY_MS
    (reason,) = found_in(status)  # one for each node, of the target that waits longest
    assert "target 201 of node 2" in reason.summary and "30.0 days" in reason.summary


def test_stray_stores_are_named_with_their_bytes() -> None:
    status = sound()
    status.nodes[1].stray_stores.targets.extend([901, 902])
    status.nodes[1].stray_stores.bytes = 3 * GIB
    (reason,) = found_in(status)
    assert (reason.code, reason.severity) == ("stray_stores", Severity.WARN)
    assert reason.summary == (
        "storage node 2 (host:2, domain rack-2) has 2 stores of targets that the cluster does not have, which take "
        "3.0 GiB of its disk: target-901, target-902"
    )
    assert "remove these directories of its data_dir by hand" in reason.advice


def test_a_store_that_a_restored_manager_may_need_is_not_called_stray() -> None:
    status = sound()
    status.nodes[1].stray_stores.targets.append(901)
    assert [reason.code for reason in found_in(status)] == ["stray_stores"]
    status.awaited_nodes.append(3)
    assert [reason.code for reason in found_in(status)] == ["restore_awaits_nodes"]
    del status.awaited_nodes[:]
    status.nodes[1].alive = False
    assert [reason.code for reason in found_in(status)] == ["node_silent"]


def test_a_disk_of_several_processes_is_named_once() -> None:
    """Blocks that targets can use again in their own files are free, too."""
    status = sound()
    for row in status.nodes[:3]:
        for target in row.targets:
            target.disk, target.free_bytes = "one", 10 * GIB
    assert [reason.summary.split(" is ")[0] for reason in found_in(status)] == ["the disk of node 1, node 2, node 3"]
    for row in status.nodes[:3]:
        for target in row.targets:
            target.free_bytes, target.reusable_bytes = 11 * GIB, 1 * GIB
    assert found_in(status) == []


def test_a_full_target_behind_the_head_does_not_make_a_chain_full() -> None:
    """It leaves the chain as soon as it refuses a write."""
    status = sound()
    status.nodes[1].targets[1].read_only = True
    assert [reason.code for reason in found_in(status)] == ["disk_read_only"]
