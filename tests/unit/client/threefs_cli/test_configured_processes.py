from threefs_cli.configured_processes import (
    Process,
    client_lines,
    client_outcomes,
    clients,
    outcome_lines,
    processes,
    successor,
    superseded_line,
)

from threefs import configuration
from threefs.configuration import Configuration, Role
from threefs.wire import manager_pb2 as pb

NEWEST = Configuration(3, 1003, {"ballast_bytes": "0", "full_ratio": "0.9", "scrub_bytes_per_s": "1000"})
SAME = pb.ConfigurationReport(version=3, made_ns=1003)
OLDER = pb.ConfigurationReport(version=2, made_ns=1002)


def node(node_id: int, report: pb.ConfigurationReport | None = SAME, *, alive: bool = True, kind: int = 1) -> Process:
    row = pb.NodeStatus(
        node=pb.Node(node_id=node_id, kind=pb.NodeKind.Name(kind), address="h:1"), alive=alive, configuration=report
    )
    return processes(pb.GetStatusReply(nodes=[row]))[1]


def exceptions(*keys: tuple[str, str, pb.KeyState]) -> pb.ConfigurationReport:
    report = pb.ConfigurationReport(version=3, made_ns=1003)
    for name, value, state in keys:
        report.keys.add(name=name, value=value, state=state, reason="it is too much" if state == pb.REFUSED else "")
    return report


OWN = exceptions(("full_ratio", "0.97", pb.OWN_FILE))
RESTART = exceptions(("ballast_bytes", "4096", pb.AWAITS_RESTART))
REFUSES = exceptions(("full_ratio", "0.98", pb.REFUSED), ("ballast_bytes", "4096", pb.AWAITS_RESTART))


def test_the_manager_comes_first_and_nodes_that_never_came_are_left_out() -> None:
    status = pb.GetStatusReply(
        configuration=configuration.to_wire(NEWEST),
        manager_configuration=SAME,
        nodes=[
            pb.NodeStatus(node=pb.Node(node_id=7, kind=pb.META, address="h:2"), alive=True, configuration=SAME),
            pb.NodeStatus(node=pb.Node(node_id=2, kind=pb.STORAGE, address="h:1"), alive=True, configuration=SAME),
            pb.NodeStatus(node=pb.Node(node_id=3, kind=pb.STORAGE)),
        ],
    )
    found = processes(status)
    assert [(one.name, one.role) for one in found] == [
        ("manager", Role.MANAGER),
        ("storage node 2", Role.STORAGE),
        ("meta service 7", Role.META),
    ]
    assert {one.state(NEWEST) for one in found} == {"applied"}
    older = processes(pb.GetStatusReply())
    assert [one.state(NEWEST) for one in older] == ["does not say"], "a manager of an older release"


def test_the_state_is_the_worst_of_its_keys() -> None:
    for report, state in (
        (SAME, "applied"),
        (OWN, "applied"),
        (RESTART, "waits for a restart"),
        (REFUSES, "refused"),
        (OLDER, "behind, at version 2"),
        (None, "does not say"),
    ):
        assert node(2, report).state(NEWEST) == state
    assert node(2, alive=False).state(NEWEST) == "does not run"
    assert node(2, OLDER).is_expected(NEWEST)
    assert not any(one.is_expected(NEWEST) for one in (node(2), node(2, None), node(2, OLDER, alive=False)))


def test_what_becomes_of_a_change_is_said_for_each_process() -> None:
    lines = [
        line
        for number, report in enumerate((SAME, OWN, RESTART, REFUSES, OLDER, None), start=1)
        for line in outcome_lines([node(number, report).outcome(NEWEST.texts, NEWEST, is_planned=False)])
    ]
    assert lines == [
        "storage node 1 has taken ballast_bytes, full_ratio, scrub_bytes_per_s",
        "storage node 2 has taken ballast_bytes, scrub_bytes_per_s",
        "storage node 2 goes by its own settings file for full_ratio",
        "storage node 3 has taken full_ratio, scrub_bytes_per_s",
        "storage node 3 takes with its next start ballast_bytes",
        "storage node 4 has taken scrub_bytes_per_s",
        "storage node 4 takes with its next start ballast_bytes",
        "storage node 4 refuses full_ratio",
        "storage node 5 has not taken ballast_bytes, full_ratio, scrub_bytes_per_s (behind, at version 2)",
        "storage node 6 has not taken ballast_bytes, full_ratio, scrub_bytes_per_s (does not say)",
    ]
    assert list(outcome_lines([node(9, kind=pb.META).outcome(NEWEST.texts, NEWEST, is_planned=False)])) == []


def test_a_dry_run_says_who_would_take_what_and_when() -> None:
    planned = [node(1, OLDER), node(2, OWN), node(3, alive=False)]
    lines = list(outcome_lines([one.outcome(NEWEST.texts, NEWEST, is_planned=True) for one in planned]))
    assert lines == [
        "storage node 1 takes at once full_ratio, scrub_bytes_per_s",
        "storage node 1 takes with its next start ballast_bytes",
        "storage node 2 takes at once scrub_bytes_per_s",
        "storage node 2 takes with its next start ballast_bytes",
        "storage node 2 goes by its own settings file for full_ratio",
        "storage node 3 has not taken ballast_bytes, full_ratio, scrub_bytes_per_s (does not run)",
    ]


def test_processes_are_asked_for_the_version_that_somebody_has_made_since() -> None:
    """They were said to have taken nothing of the change, "behind, at version 3"."""
    made = Configuration(2, 1002, {"full_ratio": "0.9", "scrub_bytes_per_s": "2000"})
    status = pb.GetStatusReply(configuration=configuration.to_wire(NEWEST))
    newest, kept = successor(made, made.texts, status)
    assert list(outcome_lines([node(1).outcome(kept, newest, is_planned=False)])) == [
        "storage node 1 has taken full_ratio"
    ]
    assert superseded_line(newest, kept, made.texts) == (
        "version 3 has been made since, with another value of scrub_bytes_per_s"
    )
    assert superseded_line(newest, ["full_ratio"], ["full_ratio"]) == "version 3 has been made since"
    assert successor(NEWEST, ["full_ratio"], status) == (NEWEST, ["full_ratio"])


OWN_OPTION = exceptions(("max_dirty_bytes", "4096", pb.OWN_FILE))


def connected(*reports: pb.ConfigurationReport) -> list[Process]:
    said = [
        pb.ClientReport(client_id=bytes([number]) * 16, name=f"job {number}", configuration=report)
        for number, report in enumerate(reports, start=1)
    ]
    return clients(pb.GetStatusReply(clients=said))


def test_clients_that_take_all_are_counted_and_the_others_named() -> None:
    found = connected(SAME, OWN_OPTION, SAME, OLDER)
    names = ["max_dirty_bytes"]
    assert list(client_lines(client_outcomes(found, names, NEWEST, is_planned=False), names)) == [
        "2 of 4 clients and mounts have taken max_dirty_bytes",
        "job 2 goes by its own options for max_dirty_bytes",
        "job 4 has not taken max_dirty_bytes (behind, at version 2)",
    ]
    assert list(client_lines(client_outcomes(found, names, NEWEST, is_planned=True), names)) == [
        "3 of 4 clients and mounts take at once max_dirty_bytes",
        "job 2 goes by its own options for max_dirty_bytes",
    ]
    assert list(client_lines(client_outcomes(connected(*[OLDER] * 12), names, NEWEST, is_planned=False), names))[
        -1
    ] == ("2 others do not take all of it, either: `threefs config status --json` names them")
    assert not client_outcomes(found, [], NEWEST, is_planned=False), "the change does not concern them"


def test_a_client_is_described_by_its_id_and_its_options() -> None:
    (one,) = connected(OWN_OPTION)
    assert one.exceptions() == "max_dirty_bytes (own option)"
    described = one.described(NEWEST)
    assert (described["client_id"], described["state"], "node_id" in described) == ("01" * 16, "applied", False)
    assert described["keys"] == [{"name": "max_dirty_bytes", "value": "4096", "state": "own option", "reason": ""}]


def test_a_refusal_has_its_reason() -> None:
    value, source, state, reason = node(4, REFUSES).value("full_ratio", NEWEST)
    assert (value, source.value, state, reason) == (0.98, "cluster", "refused", "it is too much")
    assert node(4, None).value("full_ratio", NEWEST)[0] is None
    described = node(4, REFUSES).described(NEWEST)
    assert (described["version"], described["state"], len(described["keys"])) == (3, "refused", 2)


def test_a_value_that_only_a_later_release_takes_is_not_known() -> None:
    later = Configuration(3, 1003, {"full_ratio": "1.5"})
    assert node(4).value("full_ratio", later)[::2] == (None, "a value of another release")
