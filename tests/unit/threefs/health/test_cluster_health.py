"""Every reason is produced here or in the tests beside; the page docs/health.md names each."""

import ast
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness.cluster_status import DAY_MS, GIB, chain, found_in, routing_of, sound
from threefs.health import cluster_health, verdict
from threefs.health.answers import Answers
from threefs.health.verdict import Severity
from threefs.wire import common_pb2
from threefs.wire import manager_pb2 as pb

PAGE = Path(__file__).resolve().parents[4] / "docs" / "health.md"


def test_a_sound_cluster_has_no_reason() -> None:
    assert found_in(sound()) == []
    assert verdict.severity(found_in(sound())) is Severity.OK


Change = Callable[[pb.GetStatusReply], None]


def no_plan(status: pb.GetStatusReply) -> None:
    status.Clear()


def awaited(status: pb.GetStatusReply) -> None:
    status.awaited_nodes.extend([2, 3])


def no_change(status: pb.GetStatusReply) -> None:
    status.failure = "the disk is full"


def states_of_chain_2(*states: pb.PublicState) -> Change:
    def change(status: pb.GetStatusReply) -> None:
        status.chains[1].CopyFrom(chain(2, *states))

    return change


def silent(status: pb.GetStatusReply) -> None:
    status.nodes[1].alive, status.nodes[1].silent_ms = False, 34_200


def ended(status: pb.GetStatusReply) -> None:
    silent(status)
    status.nodes[1].ended = True


def silent_drained(status: pb.GetStatusReply) -> None:
    status.nodes[1].alive, status.nodes[1].node.draining = False, True
    for one in status.chains:
        del one.members[1]


def unheard(status: pb.GetStatusReply) -> None:
    silent(status)
    status.nodes[1].heard = False


def unstarted(status: pb.GetStatusReply) -> None:
    status.nodes.append(pb.NodeStatus(node=pb.Node(node_id=4, kind=pb.STORAGE)))


def no_meta(status: pb.GetStatusReply) -> None:
    status.nodes[3].alive = False


def unreachable(status: pb.GetStatusReply) -> None:
    status.nodes[0].unreachable.add(node_id=3, unreachable_ms=12_100)


def report_of_node_2(**changed: object) -> Change:
    def change(status: pb.GetStatusReply) -> None:
        for name, value in changed.items():
            setattr(status.nodes[1].targets[1], name, value)

    return change


def disk_of_node_2(**changed: object) -> Change:
    def change(status: pb.GetStatusReply) -> None:
        for found in status.nodes[1].targets:
            for name, value in changed.items():
                setattr(found, name, value)

    return change


def full_head(status: pb.GetStatusReply) -> None:
    """It would have given way, if another target of chain 2 had room."""
    status.nodes[0].targets[1].read_only = True


def move_to_silent(status: pb.GetStatusReply) -> None:
    status.moves.add(chain_id=1, added_target=1_000_000_001, added_node=7, removed_target=101)


def drains(status: pb.GetStatusReply) -> None:
    status.nodes[2].node.draining = True


def wants_a_copy_more(status: pb.GetStatusReply) -> None:
    status.tables[0].replicas = 4


def older_release(status: pb.GetStatusReply) -> None:
    status.nodes[1].release = "0.1.9"


def fast_clock(status: pb.GetStatusReply) -> None:
    status.nodes[1].clock_ppm = 12_000


def slow_clock(status: pb.GetStatusReply) -> None:
    status.nodes[1].clock_ppm = -12_000


def backed_up(*stores: pb.BackedUpStore, silent_ms: int = 1000) -> Change:
    def change(status: pb.GetStatusReply) -> None:
        status.backups.add(name="host-b:/backup", stores=stores, report_interval_ms=5000, silent_ms=silent_ms)

    return change


def older_configuration(status: pb.GetStatusReply) -> None:
    status.configuration.version, status.configuration.made_ns = 4, 1004
    status.configuration_age_ms = 34_200
    for row in status.nodes:
        row.configuration.version, row.configuration.made_ns = 4, 1004
    status.nodes[1].configuration.version, status.nodes[1].configuration.made_ns = 3, 1003


def unsaid_configuration(status: pb.GetStatusReply) -> None:
    older_configuration(status)
    status.nodes[1].ClearField("configuration")
    status.nodes[1].release = "0.1.9"


def refused_value(status: pb.GetStatusReply) -> None:
    status.nodes[1].configuration.keys.add(name="full_ratio", state=pb.REFUSED, reason="it is from 0.5 to 1, not 7")


def managers_refusal(status: pb.GetStatusReply) -> None:
    status.manager_configuration.keys.add(name="log_level", state=pb.REFUSED, reason="it fails")


def client_of(version: int, refused: tuple[str, str] | None = None) -> Change:
    """A client that runs with that version of the configuration; the newest is 4."""

    def change(status: pb.GetStatusReply) -> None:
        older_configuration(status)
        report = pb.ConfigurationReport(version=version, made_ns=1000 + version)
        if refused is not None:
            report.keys.add(name=refused[0], state=pb.REFUSED, reason=refused[1])
        status.clients.add(client_id=bytes(16), name="train.py on gpu7, process 4711", configuration=report)

    return change


def refused(status: pb.GetStatusReply) -> None:
    status.refused_stores.add(address="host:9", reason="the metadata store is an older copy", ago_ms=4000)


def store_of_manager(**changed: object) -> Change:
    def change(status: pb.GetStatusReply) -> None:
        status.store_disk.CopyFrom(store_disk())
        for name, value in changed.items():
            setattr(status.store_disk, name, value)

    return change


def store_disk(**changed: object) -> common_pb2.StoreDisk:
    sizes = {"capacity_bytes": 20 * GIB, "free_bytes": 4 * GIB, "needed_bytes": GIB // 4}
    return common_pb2.StoreDisk(directory="/srv/kv", **(sizes | changed))  # type: ignore[arg-type]


S, O, Y, L = pb.SERVING, pb.OFFLINE, pb.SYNCING, pb.LASTSRV  # noqa: E741
WARN, ERR = Severity.WARN, Severity.ERR


@pytest.mark.parametrize(
    ("change", "code", "severity", "summary", "advice"),
    [
        (no_plan, "no_plan", ERR, "no plan yet", "threefs init"),
        (awaited, "restore_awaits_nodes", ERR, "awaited: node 2, node 3", "threefs chain accept-unheard 2 3"),
        (no_change, "chains_cannot_change", ERR, "wait: the disk is full", "free space on the disk of the manager"),
        (
            store_of_manager(full=True, free_bytes=0),
            "store_full",
            ERR,
            "the manager refuses all changes, because the disk of its store /srv/kv is full: 0 B of 20.0 GiB free",
            "so that 256.0 MiB are free",
        ),
        (
            store_of_manager(free_bytes=2 * GIB),
            "store_nearly_full",
            WARN,
            "the disk of the manager with its store /srv/kv is 90.0% full, 2.0 GiB of 20.0 GiB free (the bound is 85%)",
            "free space on that disk",
        ),
        (
            states_of_chain_2(L, O, L),
            "chain_unserved",
            ERR,
            "chain 2 has 0 of 3 copies: its reads and writes wait for target 102 of node 1, target 302 of node 3",
            "threefs chain accept-loss 2",
        ),
        (
            states_of_chain_2(S, O, Y),
            "chain_below_minimum",
            ERR,
            "1 chain has fewer copies than a write needs, so reads go on and writes wait: chain 2 has 1, a write "
            "needs 2",
            "target 202 of node 2 (offline), target 302 of node 3 (syncing); or lower the minimum",
        ),
        (
            states_of_chain_2(S, S, Y),
            "chain_degraded",
            WARN,
            "1 chain has fewer copies than planned: chain 2 has 2 of 3",
            "bring back target 302 of node 3 (syncing)",
        ),
        (
            silent,
            "node_silent",
            WARN,
            "storage node 2 (host:2, domain rack-2) has sent no heartbeat for 34.2 s (T is 10 s)",
            "threefs node drain 2",
        ),
        (silent_drained, "node_silent", WARN, "storage node 2 (host:2", "`threefs node remove 2`"),
        (ended, "node_silent", WARN, "has ended; its last heartbeat came 34.2 s ago", "start it"),
        (unheard, "node_silent", WARN, "since the manager became the primary 34.2 s ago", "start it"),
        (unstarted, "node_not_started", WARN, "storage node 4 is in the plan", "threefs node remove 4"),
        (no_meta, "no_meta_service", ERR, "none of 1 meta service answers", "start one"),
        (unreachable, "link_failed", WARN, "cannot reach node 3 for 12 s", "mend the network"),
        (
            report_of_node_2(failure="input/output error"),
            "target_failed",
            WARN,
            "target 202 of storage node 2 (host:2, domain rack-2) does not serve: input/output error",
            "replace a failed disk",
        ),
        (
            disk_of_node_2(read_only=True, failure="no space is left", free_bytes=2 * GIB),
            "disk_read_only",
            WARN,
            "the disk of node 2 takes no writes of clients, with 2.0 GiB of 100.0 GiB free: no space is left",
            "remove files",
        ),
        (full_head, "chain_full", ERR, "no serving target has free space: chain 2", "remove files"),
        (
            disk_of_node_2(free_bytes=14 * GIB),
            "disk_nearly_full",
            WARN,
            "the disk of node 2 is 86.0% full, 14.0 GiB of 100.0 GiB free (the bound is 85%",
            "threefs rebalance",
        ),
        (report_of_node_2(lost_chunks=1), "chunks_lost", ERR, "1 chunk of target 202 of node 2", "threefs fsck"),
        (report_of_node_2(unrepaired_chunks=4), "chunks_unrepaired", WARN, "4 of target 202 of node 2", "bring back"),
        (
            report_of_node_2(damaged_chunks=3, repaired_chunks=2),
            "disk_damages",
            WARN,
            "the disk of node 2 has returned wrong bytes of 3 chunks since its process was started; 2 repaired",
            "replace the disk",
        ),
        (move_to_silent, "moves_stuck", WARN, "1 target moves to node 7, which is silent", "start node 7"),
        (
            report_of_node_2(unscrubbed_ms=15 * DAY_MS, scrub_interval_ms=7 * DAY_MS),
            "scrub_late",
            WARN,
            "target 202 of node 2 was not read in full for 15.0 days; it should be once in 7.0 days",
            "scrub_bytes_per_s",
        ),
        (
            older_release,
            "several_releases",
            WARN,
            "2 releases run: 0.1.9 (node 2); 0.2.0 (the primary manager, node 1, node 3, node 1001)",
            "docs/upgrade.md",
        ),
        (
            fast_clock,
            "clock_rate",
            WARN,
            "node 2 (host:2, domain rack-2) runs 1.2 % faster than",
            "mend the clock source",
        ),
        (slow_clock, "clock_rate", WARN, "runs 1.2 % slower than that of the primary manager", "mend the clock source"),
        (
            backed_up(pb.BackedUpStore(store="meta", complete=True, behind_ms=12_000, failure="no space is left")),
            "backup_late",
            WARN,
            "the meta store in the backup at host-b:/backup is 12 s behind (the bound is 10 s): no space is left",
            "docs/backup.md",
        ),
        (
            backed_up(pb.BackedUpStore(store="manager")),
            "backup_late",
            WARN,
            "the copy of the manager store in the backup at host-b:/backup is not whole",
            "docs/backup.md",
        ),
        (
            backed_up(silent_ms=31_000),
            "backup_silent",
            WARN,
            "the backup at host-b:/backup has not said how it is for 31 s (it should every 5 s)",
            "start `threefs backup` again",
        ),
        (
            refused,
            "metadata_store_refused",
            WARN,
            "the meta service at host:9 was refused 4 s ago: the metadata store is an older copy",
            "give it the right store",
        ),
        (
            older_configuration,
            "configuration_behind",
            WARN,
            "node 2 (host:2, domain rack-2) runs with version 3 of the configuration; the newest is 4, 34 s old",
            "look at its log",
        ),
        (
            unsaid_configuration,
            "configuration_behind",
            WARN,
            "node 2 (host:2, domain rack-2) is of a release that does not say which version of the configuration",
            "docs/upgrade.md",
        ),
        (
            refused_value,
            "configuration_refused",
            WARN,
            "(host:2, domain rack-2) refuses values of the configuration: full_ratio (it is from 0.5 to 1, not 7)",
            "threefs config rollback",
        ),
        (
            managers_refusal,
            "configuration_refused",
            WARN,
            "the primary manager refuses values of the configuration: log_level (it fails)",
            "threefs config set",
        ),
        (
            client_of(version=3),
            "client_configuration_behind",
            WARN,
            "1 client or mount has not taken the newest version of the configuration: train.py on gpu7, process 4711 "
            "(version 3); the newest is 4, 34 s old (the bound is T, 10 s)",
            "threefs config status",
        ),
        (
            client_of(version=4, refused=("max_dirty_bytes", "it fails")),
            "client_configuration_refused",
            WARN,
            "1 client or mount refuses values of the configuration: train.py on gpu7, process 4711: max_dirty_bytes "
            "(it fails)",
            "threefs config rollback",
        ),
        (drains, "drain_stuck", WARN, "drains, but 2 of its targets do not move", "threefs node undrain 3"),
        (
            wants_a_copy_more,
            "copies_stuck",
            WARN,
            "2 chains have fewer copies than the 4 that table 1 is to have, and none is being added",
            "threefs table set-replicas 1",
        ),
    ],
)
def test_each_reason_says_what_is_so_and_what_to_do(
    change: Change, code: str, severity: Severity, summary: str, advice: str
) -> None:
    status = sound()
    change(status)
    found = {reason.code: reason for reason in found_in(status)}
    assert code in found
    assert found[code].severity is severity
    assert summary in found[code].summary
    assert advice in found[code].advice
    assert verdict.severity(found.values()) >= severity


def test_targets_out_of_service_are_named() -> None:
    answers = Answers(sound(), routing_of(sound()))
    answers.routing.targets[1].hold = pb.HOLD_OFFLINE
    target = answers.routing.targets[1]
    (found,) = cluster_health.reasons(answers)
    assert (found.code, found.severity) == ("target_held", WARN)
    assert f"1 target is out of service because an administrator wants it: target {target.target_id}" in found.summary
    assert f"threefs target online {target.target_id}`" in found.advice


def test_the_advice_brings_all_targets_back_that_are_out_of_service() -> None:
    answers = Answers(sound(), routing_of(sound()))
    held = [pb.Target(target_id=200 + number, node_id=2, hold=pb.HOLD_OFFLINE) for number in range(1, 12)]
    answers.routing.targets.extend(held)
    status = sound()
    status.chains[0].members.extend(pb.ChainMember(target_id=one.target_id, state=pb.OFFLINE) for one in held)
    (found,) = (one for one in cluster_health.reasons(Answers(status, answers.routing)) if one.code == "target_held")
    assert "11 targets are out of service" in found.summary
    assert found.advice.endswith("`threefs target online --node 2`")


def test_a_node_that_has_ended_is_no_failed_link() -> None:
    """Nobody can reach it, and no network has to be mended for it."""
    status = sound()
    unreachable(status)
    third = next(row for row in status.nodes if row.node.node_id == 3)
    third.alive, third.ended = False, True
    assert "link_failed" not in {reason.code for reason in found_in(status)}


def test_services_that_answer_no_call_are_reported() -> None:
    found = found_in(sound(), managers=["host:8"], metas=[1001])
    assert [(reason.code, reason.severity) for reason in found] == [
        ("no_meta_service", ERR),
        ("meta_service_silent", WARN),
        ("manager_silent", WARN),
    ]
    assert "the manager at host:8 does not answer" in found[2].summary


def test_a_full_store_of_a_meta_service_is_reported() -> None:
    (found,) = found_in(sound(), disks={1001: store_disk(full=True)})  # a quota may end before the disk does
    assert (found.code, found.severity) == ("store_full", ERR)
    assert found.summary.startswith("meta service 1001 (host:9) refuses all changes")
    found, warning = found_in(sound(), disks={1001: store_disk(removals_only=True, free_bytes=GIB // 64)})
    assert warning.code == "store_nearly_full"
    assert (found.code, found.severity) == ("store_removals_only", ERR)
    assert found.summary.startswith("meta service 1001 takes only removals, because the disk of its store /srv/kv is")
    assert found.summary.endswith("16.0 MiB of 20.0 GiB free")
    (found,) = found_in(sound(), disks={1001: store_disk(free_bytes=GIB)})
    assert (found.code, found.severity) == ("store_nearly_full", WARN)
    assert found.summary.startswith("the disk of meta service 1001 (host:9) with its store /srv/kv is 95.0% full")


def test_room_on_the_disks_of_stores_is_no_reason() -> None:
    status = sound()
    store_of_manager()(status)
    assert found_in(status, disks={1001: store_disk(free_bytes=3 * GIB + 1)}) == []


def test_one_meta_service_is_enough() -> None:
    status = sound()
    status.nodes.add(
        node=pb.Node(node_id=1002, kind=pb.META, address="host:10"), alive=False, heard=True, release="0.1.9"
    )
    assert [reason.code for reason in found_in(status)] == ["node_silent"]
    status = sound()
    status.nodes.add(
        node=pb.Node(node_id=1002, kind=pb.META, address="host:10"), alive=True, heard=True, release="0.2.0"
    )
    assert [reason.code for reason in found_in(status, metas=[1002])] == ["meta_service_silent"]


def test_a_process_that_does_not_say_its_release_is_an_older_one() -> None:
    status = sound()
    status.nodes[3].release = ""
    (found,) = found_in(status)
    assert found.summary.endswith("an older one (node 1001)")
    status.nodes[3].heard = False
    assert found_in(status) == []  # a manager that has just become the primary has not heard of it
    status.nodes[3].alive = False
    assert "several_releases" not in {reason.code for reason in found_in(status)}


def test_old_reports_of_a_silent_node_are_no_reason() -> None:
    status = sound()
    report_of_node_2(lost_chunks=1, failure="it has failed", read_only=True)(status)
    silent(status)
    assert [reason.code for reason in found_in(status)] == ["node_silent"]


def codes() -> set[str]:
    """Of all modules of the package, read from their source."""
    files = Path(cluster_health.__file__).parent.glob("*.py")
    nodes = (node for file in files for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    reasons = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "Reason"]
    found = [call.args[0] for call in reasons if isinstance(call.args[0], ast.Constant)]
    assert len(found) == len(reasons), "a code is written out, so that this test and its readers find it"
    return {str(code.value) for code in found}


def test_each_reason_is_produced_here_and_explained_on_its_page() -> None:
    here = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*_health.py"))
    assert len(codes()) > 15
    assert {code for code in codes() if f'"{code}"' not in here} == set()
    explained = set(re.findall(r"^\| `(\w+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    assert codes() <= explained
