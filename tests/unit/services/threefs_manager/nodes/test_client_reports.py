"""What clients say of their configuration, and how much of it is kept."""

import asyncio

import pytest
from threefs_manager.nodes import client_reports
from threefs_manager.nodes.client_reports import CLIENT_ID_BYTES, MAX_CLIENTS, MAX_NAME_CHARS, ClientReports

from tests.harness.clocks import SteppedClock
from threefs.wire import manager_pb2 as pb

T = 10.0


def asks(reports: ClientReports, number: int, version: int = 1) -> None:
    with reports.asking(request(number, version), T):
        pass


def request(number: int, version: int = 1) -> pb.GetRoutingRequest:
    return pb.GetRoutingRequest(
        client=pb.ClientReport(
            client_id=number.to_bytes(CLIENT_ID_BYTES, "big"),
            name=f"client {number}",
            configuration=pb.ConfigurationReport(version=version, made_ns=version),
        )
    )


def names(reports: ClientReports) -> list[str]:
    return [one.name for one in reports.heard(T)]


def test_the_newest_of_each_client_is_kept_until_it_is_silent() -> None:
    clock = SteppedClock()
    reports = ClientReports(clock)
    asks(reports, 2)
    clock.advance(T / 2)
    asks(reports, 1)
    asks(reports, 1, version=5)
    assert [(one.name, one.configuration.version) for one in reports.heard(T)] == [("client 1", 5), ("client 2", 1)]
    clock.advance(T / 2)
    assert names(reports) == ["client 1"]
    reports.clear()
    assert not names(reports)


def test_a_client_whose_connection_ends_while_it_asks_is_forgotten() -> None:
    reports = ClientReports(SteppedClock())
    asks(reports, 1)
    with pytest.raises(asyncio.CancelledError), reports.asking(request(1), T):
        assert names(reports) == ["client 1"]
        raise asyncio.CancelledError
    assert not names(reports)


def test_a_client_that_asks_over_another_connection_is_not_forgotten_with_the_first_one() -> None:
    reports = ClientReports(SteppedClock())
    with pytest.raises(asyncio.CancelledError), reports.asking(request(1), T):
        asks(reports, 1)
        raise asyncio.CancelledError
    assert names(reports) == ["client 1"]


def test_nodes_and_older_clients_say_nothing_here() -> None:
    reports = ClientReports(SteppedClock())
    with reports.asking(pb.GetRoutingRequest(), T):
        pass
    with reports.asking(pb.GetRoutingRequest(client=pb.ClientReport(client_id=b"short")), T):
        pass
    assert not reports.heard(T)


def test_only_so_many_are_kept_and_there_is_room_again_when_some_are_silent() -> None:
    clock = SteppedClock()
    reports = ClientReports(clock)
    for number in range(MAX_CLIENTS):
        asks(reports, number)
    assert not reports.are_more
    asks(reports, MAX_CLIENTS)
    assert len(reports.heard(T)) == MAX_CLIENTS and reports.are_more
    asks(reports, 0, version=2)
    assert max(one.configuration.version for one in reports.heard(T)) == 2, "one that is known is heard"
    clock.advance(T)
    asks(reports, MAX_CLIENTS)
    assert names(reports) == [f"client {MAX_CLIENTS}"] and not reports.are_more


def test_only_so_much_of_each_is_kept() -> None:
    long = request(1)
    long.client.name = "x" * 10_000
    for number in range(1000):
        long.client.configuration.keys.add(name=f"{number}" * 1000, value="v" * 1000, reason="r" * 10_000)
    reports = ClientReports(SteppedClock())
    with reports.asking(long, T):
        pass
    (kept,) = reports.heard(T)
    assert len(kept.name) == MAX_NAME_CHARS and len(kept.configuration.keys) == client_reports._MAX_KEYS
    assert kept.ByteSize() < 8000
