"""What the commands say when targets should move, or be added, and no node can take them."""

import json

import pytest
from click.testing import CliRunner
from threefs_cli.cluster_selector import ClusterSelector
from threefs_cli.main import main

from tests.harness.cluster_status import routing_of, sound
from threefs.wire import manager_pb2 as pb


def said(monkeypatch: pytest.MonkeyPatch, answer: object, *arguments: str) -> str:
    monkeypatch.setattr(ClusterSelector, "run", lambda self, work: answer)
    monkeypatch.setattr(ClusterSelector, "url", lambda self: "threefs://host:1")
    result = CliRunner().invoke(main, [*arguments, "--address", "threefs://host:1"])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_set_replicas_says_that_copies_lack_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    status = sound()
    more, same = ("table", "set-replicas", "1", "4"), ("table", "set-replicas", "1", "3")
    assert said(monkeypatch, ([], status), *more).startswith("2 chains lack a copy, and no node has room for it")
    assert said(monkeypatch, ([], status), *more, "--dry-run").startswith("2 chains would lack a copy")
    assert said(monkeypatch, ([], status), *same) == "nothing has to be added or removed now\n"
    assert json.loads(said(monkeypatch, ([], status), *more, "--json"))["chains_without_place"] == 2
    assert json.loads(said(monkeypatch, ([], status), *same, "--json"))["chains_without_place"] == 0
    status.moves.add(chain_id=1, added_target=1_000_000_001, added_node=2)
    assert said(monkeypatch, ([], status), *more).startswith("1 chain lacks a copy")


def test_drain_says_that_targets_have_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    status = sound()
    drain = ("node", "drain", "3")
    assert said(monkeypatch, ([], status, routing_of(status)), *drain).startswith("2 of its targets have no place now")
    row = json.loads(said(monkeypatch, ([], status, routing_of(status)), *drain, "--json"))
    assert (row["moves"], row["targets_without_place"]) == ([], 2)
    for chain in status.chains:
        status.moves.add(chain_id=chain.chain_id, added_node=2, removed_target=chain.members[2].target_id)
    assert said(monkeypatch, ([], status, routing_of(status)), *drain) == "nothing has to move\n"
    moves = [pb.Move(chain_id=1, added_node=2, removed_target=301)]
    assert said(monkeypatch, (moves, status, routing_of(status)), *drain).startswith("1 target moves now: 1 to node 2")


def test_drain_says_that_targets_wait_for_other_moves_of_their_chains(monkeypatch: pytest.MonkeyPatch) -> None:
    """It said that no node has room, and the administrator added nodes."""
    drain = ("node", "drain", "3")
    moving, leaving, unserved, both = sound(), sound(), sound(), sound()
    for chain in moving.chains:
        moving.moves.add(chain_id=chain.chain_id, added_node=4, removed_target=chain.members[0].target_id)
    for chain in leaving.chains:
        chain.members[0].leaving = True
    for chain in unserved.chains:
        for member in chain.members:
            member.state = pb.LASTSRV
    for status in (moving, leaving, unserved):
        answer: object = ([], status, routing_of(status))
        assert said(monkeypatch, answer, *drain).startswith("2 of its targets wait until other moves")
        row = json.loads(said(monkeypatch, answer, *drain, "--json"))
        assert (row["targets_without_place"], row["targets_waiting"]) == (0, 2)
    both.moves.append(moving.moves[0])
    first, second = said(monkeypatch, ([], both, routing_of(both)), *drain).splitlines()
    assert first.startswith("1 of its targets has no place now") and second.startswith("1 of its targets waits until")


def test_rebalance_says_that_moves_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    assert said(monkeypatch, ([], 0), "rebalance") == "nothing has to move\n"
    assert said(monkeypatch, ([], 1), "rebalance").startswith("nothing more moves yet: 1 move of before is not done")
    assert said(monkeypatch, ([], 2), "rebalance", "--dry-run").startswith("nothing more would move yet: 2 moves")
    assert json.loads(said(monkeypatch, ([], 1), "rebalance", "--json"))["moves_before"] == 1
    moves = [pb.Move(chain_id=1, added_target=1_000_000_001, added_node=2)]
    assert said(monkeypatch, (moves, 0), "rebalance").startswith("1 target moves now: 1 to node 2")


def test_nodes_are_listed_although_a_target_is_removed_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its record had gone when the routing was read, after the status."""
    status = sound()
    routing = routing_of(status)
    del routing.targets[0]
    rows = json.loads(said(monkeypatch, (status, routing), "node", "ls", "--json"))["nodes"]
    assert sum(row["targets"] for row in rows) == len(routing.targets)
    assert said(monkeypatch, ([], status, routing), "node", "drain", "3").startswith("2 of its targets have no place")
