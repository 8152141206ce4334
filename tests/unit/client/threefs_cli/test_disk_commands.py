"""A replacement begins with all targets that the disk has, and nobody is told to take out a disk that is needed."""

from types import SimpleNamespace
from typing import Any

import pytest
from threefs_cli import cluster_state, disk_commands, disk_replacement, target_commands
from threefs_cli.cluster_state import ClusterState
from threefs_cli.disk_replacement import Disk, Phase

from threefs.errors import InvalidArgument
from threefs.rpc.methods import GET_ROUTING, GET_STATUS
from threefs.wire import manager_pb2 as pb

URL = "threefs://h:1"


class Managers:
    """Node 2 has targets of chains 1, 2, ...; each hold is carried out at once, but that of the targets that stay."""

    def __init__(self, *targets: int) -> None:
        self.states: dict[int, pb.PublicState] = dict.fromkeys(targets, pb.SERVING)
        self.held: list[list[int]] = []  # by each call
        self.stays: set[int] = set()
        self.comes = 0  # a target that a move adds while the first ones are held
        self.stores = dict.fromkeys(targets, 5)
        self.replaces_damaged = 0  # the target whose damaged store an empty one has replaced

    def state(self) -> ClusterState:
        chains = [
            pb.Chain(chain_id=number, members=[pb.ChainMember(target_id=target, state=state)])
            for number, (target, state) in enumerate(self.states.items(), 1)
        ]
        out = {target for call in self.held for target in call}
        targets = [
            pb.Target(
                target_id=t,
                node_id=2,
                hold=pb.HOLD_OFFLINE if t in out else pb.HOLD_NONE,
                store_id=self.stores.get(t, 0),
                held_store_id=self.stores.get(t, 0) if t in out else 0,
            )
            for t in self.states
        ]
        reports = [
            pb.TargetReport(target_id=t, store_id=store, replaces_damaged=t == self.replaces_damaged)
            for t, store in self.stores.items()
        ]
        nodes = [pb.NodeStatus(node=pb.Node(node_id=2), alive=True, targets=reports)]
        return ClusterState(pb.GetStatusReply(chains=chains, nodes=nodes), pb.Routing(targets=targets))

    def disk(self) -> Disk:
        return disk_replacement.look(self.state(), 2)

    async def call(self, method: Any, request: Any, *, timeout_s: float) -> Any:
        if method is GET_STATUS:
            return self.state().status
        if method is GET_ROUTING:
            return pb.GetRoutingReply(routing=self.state().routing)
        self.held.append(list(request.targets))
        if self.comes:
            self.states[self.comes], self.comes = pb.SYNCING, 0
        self.states |= {target: pb.OFFLINE for target in request.targets if target not in self.stays}
        return method.reply()


async def replace(services: Managers, found: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (cluster_state, target_commands):
        monkeypatch.setattr(module, "managers", lambda *_: services)
    fs: Any = SimpleNamespace()
    await disk_commands._replace(fs, URL, found, 1.0, True, False)


async def test_targets_that_move_meanwhile_put_no_replacement_off(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It said that another one was under way, followed that, and ended."""
    services = Managers(201, 202)
    found = services.disk()
    del services.states[201]
    services.states[203] = pb.SERVING
    services.comes = 204
    await replace(services, found, monkeypatch)
    assert services.held == [[202, 203], [202, 203, 204]] and services.disk().phase is Phase.AWAITED
    assert "stop its process" in capsys.readouterr().out


@pytest.mark.parametrize("state", [pb.SYNCING, pb.SERVING])
async def test_a_store_that_was_damaged_meanwhile_puts_no_replacement_off(
    state: "pb.PublicState", monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    services = Managers(201, 202)
    found = services.disk()
    services.states[202], services.stores[202], services.replaces_damaged = state, 9, 202
    await replace(services, found, monkeypatch)
    assert services.held == [[201, 202]] and "stop its process" in capsys.readouterr().out


async def test_the_filling_of_a_damaged_store_of_the_new_disk_is_followed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    services = Managers(201, 202)
    services.states[202] = pb.SYNCING
    found = services.disk()
    services.stores[202], services.replaces_damaged = 9, 202
    await replace(services, found, monkeypatch)
    told = capsys.readouterr().out
    assert not services.held and "1 of 2 targets serve" in told and "the place of a damaged one is filled" in told


async def test_a_disk_that_is_needed_is_not_to_be_taken_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    services = Managers(201, 202)
    services.held, services.stays = [[201, 202]], {202}
    with pytest.raises(InvalidArgument, match="do not change its disk"):
        await replace(services, services.disk(), monkeypatch)
    assert not capsys.readouterr().out
    services.held = [[201]]
    assert services.disk().phase is Phase.PARTIAL
    services.stays = set()
    await replace(services, services.disk(), monkeypatch)
    assert services.held == [[201], [201, 202]] and "stop its process" in capsys.readouterr().out
