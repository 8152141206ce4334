"""Status and routing may be of two moments. Commands that wait for a change wait for the next primary as well."""

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from threefs_cli import chain_commands, cluster_state, config_commands, table_commands, target_commands
from threefs_cli.cluster_state import ClusterState

from threefs.errors import ConnectionLost, NotFound, NotPrimary, ThreefsError
from threefs.rpc.methods import CREATE_TABLE, GET_ROUTING, GET_STATUS, SET_CONFIGURATION
from threefs.wire import manager_pb2 as pb

URL = "threefs://h:1"


def test_what_only_one_of_the_two_answers_names_is_no_error() -> None:
    status = pb.GetStatusReply(
        nodes=[pb.NodeStatus(node=pb.Node(node_id=1), targets=[pb.TargetReport(target_id=101, chunks=3)])],
        chains=[pb.Chain(chain_id=4)],
        tables=[pb.ChainTable(table_id=2, chains=[4])],
        moves=[pb.Move(chain_id=4)],
    )
    routing = pb.Routing(targets=[pb.Target(target_id=101, node_id=1), pb.Target(target_id=201, node_id=2)])
    state = ClusterState(status, routing)
    known = state.node_status(101)
    assert known is not None and known.node.node_id == 1
    assert state.node_status(201) is None and state.node_status(999) is None
    assert state.reports[101].chunks == 3 and state.table_of[4].table_id == 2 and state.moving == {4}
    assert state.chain(4).chain_id == 4
    with pytest.raises(NotFound):
        state.chain(5)


class Managers:
    """The primary is lost after the first change. The next one knows of its effect."""

    def __init__(self) -> None:
        self.failures: list[ThreefsError] = []
        self.members = [pb.ChainMember(target_id=number, state=pb.SERVING) for number in (301, 101)]

    async def call(self, method: Any, request: Any, *, timeout_s: float) -> Any:
        if self.failures:
            raise self.failures.pop(0)
        if method is GET_ROUTING:
            return pb.GetRoutingReply()
        if method is GET_STATUS:
            return pb.GetStatusReply(chains=[pb.Chain(chain_id=4, members=self.members, version=7)])
        self.failures = [ConnectionLost(), NotPrimary()]
        self.members = [self.members[1], pb.ChainMember(target_id=301, state=pb.OFFLINE)]
        return method.reply()


async def rotate(fs: Any, services: Managers) -> None:
    assert await chain_commands._rotate(fs, URL, 4, False) == (301, 101, 7)


async def take_out(fs: Any, services: Managers) -> None:
    await target_commands.hold_until_out(fs, URL, [301], pb.HOLD_OFFLINE)


async def set_value(fs: Any, services: Managers) -> None:
    await services.call(SET_CONFIGURATION, None, timeout_s=1)
    await config_commands._applied_status(fs, URL)


async def make_table(fs: Any, services: Managers) -> None:
    await services.call(CREATE_TABLE, None, timeout_s=1)
    await table_commands._wait_for_chains(fs, URL, pb.ChainTable(table_id=2, chains=[4]))


@pytest.mark.parametrize("command", [rotate, take_out, set_value, make_table])
async def test_a_command_that_has_changed_something_waits_for_the_next_primary(
    command: Callable[[Any, Managers], Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended with an error, as if nothing had been changed."""
    services = Managers()
    for module in (chain_commands, cluster_state, config_commands, table_commands, target_commands):
        monkeypatch.setattr(module, "managers", lambda *_: services)
        monkeypatch.setattr(module, "_POLL_S", 0.0)
    await command(SimpleNamespace(context=SimpleNamespace(client=b"")), services)
    assert not services.failures
