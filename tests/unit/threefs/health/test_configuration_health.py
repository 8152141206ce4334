from tests.harness.cluster_status import GIB, found_in, routing_of, sound
from threefs import configuration
from threefs.configuration import Configuration
from threefs.health.answers import Answers
from threefs.health.configuration_health import managers_value
from threefs.wire import manager_pb2 as pb

NEWEST = Configuration(4, 1004, {"nearly_full_ratio": "0.5"})


def configured(age_ms: int = 34_200) -> pb.GetStatusReply:
    """All processes run with NEWEST."""
    status = sound()
    status.configuration.CopyFrom(configuration.to_wire(NEWEST))
    status.configuration_age_ms = age_ms
    for report in (status.manager_configuration, *(row.configuration for row in status.nodes)):
        report.version, report.made_ns = NEWEST.version, NEWEST.made_ns
    return status


def codes(status: pb.GetStatusReply) -> list[str]:
    return [reason.code for reason in found_in(status)]


def test_processes_have_the_time_t_to_take_a_version() -> None:
    assert codes(configured()) == []
    for age_ms, expected in ((9_999, []), (10_000, ["configuration_behind"])):
        status = configured(age_ms)
        status.nodes[1].configuration.made_ns = 1003
        assert codes(status) == expected


def test_one_that_is_silent_or_has_just_registered_is_not_behind() -> None:
    status = configured()
    status.nodes[1].ClearField("configuration")
    assert codes(status) == [], "it has just registered"
    status.nodes[1].configuration.made_ns = 1003
    status.nodes[1].alive = False
    assert codes(status) == ["node_silent"]


def test_clients_have_the_time_t_too_and_are_named_together() -> None:
    for age_ms, expected in ((9_999, []), (10_000, ["client_configuration_behind"])):
        status = configured(age_ms)
        for number in range(20):
            report = pb.ConfigurationReport(version=3, made_ns=1003 if number else NEWEST.made_ns)
            status.clients.add(name=f"job {number:02}", configuration=report)
        assert codes(status) == expected
    (found,) = found_in(status)
    assert found.summary.startswith("19 clients and mounts have not taken")
    assert "job 01 (version 3), " in found.summary and "job 08 (version 3) and 11 more; " in found.summary


def test_an_older_client_may_refuse_keys_of_services_that_it_does_not_know() -> None:
    status = configured()
    report = pb.ConfigurationReport(version=4, made_ns=NEWEST.made_ns)
    report.keys.add(name="full_ratio", state=pb.REFUSED, reason="this release does not know the key")
    report.keys.add(name="max_dirty_bytes", state=pb.OWN_FILE)
    status.clients.add(name="job", configuration=report)
    assert codes(status) == []
    for name in ("max_dirty_bytes", "key_of_a_later_release"):
        status.clients[0].configuration.keys[0].name = name
        assert codes(status) == ["client_configuration_refused"]


def test_nothing_is_behind_while_nothing_was_ever_set() -> None:
    status = sound()
    status.configuration_age_ms = 10**9
    assert codes(status) == []


def test_the_bound_of_full_disks_is_that_of_the_primary_manager() -> None:
    status = configured()
    for report in status.nodes[1].targets:
        report.free_bytes = 49 * GIB
    (found,) = found_in(status)
    assert found.code == "disk_nearly_full" and "(the bound is 50%" in found.summary
    status.manager_configuration.keys.add(name="nearly_full_ratio", value="0.6", state=pb.OWN_FILE)
    assert codes(status) == []


def test_a_manager_of_an_older_or_a_later_release_has_the_default() -> None:
    for status in (sound(), configured()):
        if status.configuration.version:
            status.configuration.values[0].value = "as people like it"
        assert managers_value(Answers(status, routing_of(status)), "nearly_full_ratio") == 0.85
