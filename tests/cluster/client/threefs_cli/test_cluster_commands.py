import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from threefs_cli import cluster_commands, cluster_file
from threefs_cli.main import main

from tests.harness.command_line import CommandLine
from threefs.wire import common_pb2, meta_pb2
from threefs.wire import manager_pb2 as pb


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[str]:
    yield str(tmp_path / "cluster")
    CliRunner().invoke(main, ["down", "--dir", str(tmp_path / "cluster")])


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, [*arguments])
    return result.exit_code, result.stdout or result.stderr


def test_up_status_down(directory: str) -> None:
    planned = run("up", "--dir", directory, "--storage", "1", "--dry-run")
    assert planned == (0, f"would start manager, meta, storage-1, in {directory}\n") and not Path(directory).exists()
    code, printed = run("up", "--dir", directory, "--storage", "1", "--json")
    assert code == 0, printed
    state = json.loads(printed)
    assert state["address"].startswith("threefs://127.0.0.1:")
    assert [row["name"] for row in state["programs"]] == ["manager", "meta", "storage-1"]
    code, printed = run("status", "--dir", directory)
    assert (
        code == 0
        and printed.count("alive") == 2
        and "1 chain; targets: 1 serving; a write needs 1 of 1 copies" in printed
        and f"manager {state['address'].removeprefix('threefs://')} is primary\n" in printed
    )
    before = (Path(directory) / "cluster.json").read_bytes()
    planned = run("up", "--dir", directory, "--storage", "2", "--dry-run")
    assert planned == (0, f"would start storage-2, in {directory}\ntargets would move to storage-2\n")
    assert json.loads(run("up", "--dir", directory, "--dry-run", "--json")[1])["start"] == []
    assert run("up", "--dir", directory, "--replicas", "2", "--dry-run")[0] == 2
    assert (Path(directory) / "cluster.json").read_bytes() == before
    assert run("up", "--dir", directory, "--replicas", "2")[0] == 2
    code, printed = run("up", "--dir", directory)
    assert code == 0 and printed.startswith(f"{state['address']} is up")
    assert run("down", "--dir", directory) == (0, "stopped manager, meta, storage-1\n")
    assert run("down", "--dir", directory) == (0, f"no cluster runs in {directory}\n")
    code, printed = run("ls", "--dir", directory)
    assert code == 1 and "threefs up" in printed


def test_a_directory_of_somebody_else_stays_as_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    (tmp_path / "lock").write_text("theirs")
    (tmp_path / "photo").touch()
    code, printed = run("up", "--dir", str(tmp_path))
    assert code == 1 and "is not empty and holds no cluster" in printed
    assert tmp_path.stat().st_mode & 0o7777 == 0o1777
    assert (tmp_path / "lock").read_text() == "theirs"


def test_a_first_start_that_was_cut_short_is_repeated(tmp_path: Path) -> None:
    for name in ("lock", cluster_file.UNFINISHED):
        (tmp_path / name).touch()
    code, printed = run("up", "--dir", str(tmp_path), "--dry-run")
    assert code == 0 and printed.startswith("would start ")


def test_impossible_plans(directory: str) -> None:
    code, printed = run("up", "--dir", directory, "--storage", "2", "--replicas", "3")
    assert code == 2 and "3 replicas need" in printed
    code, printed = run("up", "--dir", directory, "--min-replicas", "4")
    assert code == 2 and "cannot need 4 copies of 3" in printed
    assert run("up", "--storage", "0")[0] == 2
    assert not Path(directory).exists()


def test_status_as_json(threefs: CommandLine) -> None:
    def states() -> set[str]:
        return {member["state"] for chain in threefs.json("status")["chains"] for member in chain["members"]}

    managers = [
        {"address": threefs.address.removeprefix("threefs://"), "role": "primary", "alive": True, "error": None}
    ]
    assert threefs.json("status")["managers"] == managers
    assert [node["kind"] for node in threefs.json("status")["nodes"]] == ["storage"] * 3 + ["meta"]
    while states() != {"serving"}:  # one that was slow to start has been put out, and catches up
        time.sleep(0.1)


@pytest.mark.parametrize("kind", ["meta", "storage"])
@pytest.mark.parametrize("command", [["ls", "/"], ["init", "1"]])
def test_the_address_of_a_service_that_is_no_manager_is_said_to_be_one(
    threefs: CommandLine, kind: str, command: list[str]
) -> None:
    node = next(node for node in threefs.json("status")["nodes"] if node["kind"] == kind)
    said = CommandLine(f"threefs://{node['address']}").error(*command)
    assert f"a {kind} service answers at {node['address']}, and a manager is needed" in said


def test_a_silent_node_is_reported_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    node = pb.Node(node_id=1, kind=pb.STORAGE, address="h:1", domain="d")
    target = pb.TargetReport(chunks=2, used_bytes=10, capacity_bytes=100)
    reply = pb.GetStatusReply(
        cluster_id="c", nodes=[pb.NodeStatus(node=node, heard=True, silent_ms=4000, targets=[target, target])]
    )
    found = cluster_commands.describe("threefs://h:0", reply)
    assert found["nodes"][0] == {
        "node_id": 1,
        "kind": "storage",
        "address": "h:1",
        "domain": "d",
        "draining": False,
        "alive": False,
        "heard": True,
        "ended": False,
        "silent_ms": 4000,
        "targets": 2,
        "chunks": 4,
        "used_bytes": 20,
        "resync": [],
        "scrubbed_chunks": 0,
        "damaged_chunks": 0,
        "unrepaired_chunks": 0,
        "scrubbed_bytes": 0,
        "scrub_passes": 0,
        "repaired_chunks": 0,
        "unreachable": [],
        "read_only": False,
        "failures": [],
        "capacity_bytes": 100,
    }
    cluster_commands.print_status(found)
    assert "silent for 4.0 s" in capsys.readouterr().out


def test_recovery_damage_and_full_disks_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    node = pb.Node(node_id=1, kind=pb.STORAGE, address="h:1", domain="d")
    syncing = pb.TargetReport(target_id=101, synced_chunks=30, chunks_to_sync=70)
    damaged = pb.TargetReport(target_id=102, damaged_chunks=3, repaired_chunks=2, scrubbed_chunks=9)
    full = pb.TargetReport(target_id=103, read_only=True, failure="the disk of /d is full")
    peer = pb.UnreachablePeer(node_id=3, unreachable_ms=12_100)
    row = pb.NodeStatus(node=node, alive=True, targets=[syncing, damaged, full], unreachable=[peer])
    reply = pb.GetStatusReply(nodes=[row])
    found = cluster_commands.describe("threefs://h:0", reply)
    assert found["nodes"][0]["resync"] == [{"target_id": 101, "looked_at_chunks": 30, "chunks": 70}]
    cluster_commands.print_status(found)
    shown = capsys.readouterr().out
    for line in (
        "node 1: target 101 brings its successor up to date: 30 of 70 chunks",
        "node 1: it cannot reach node 3 for 12 s",
        "node 1: 3 damaged chunks found, 2 repaired",
        "node 1: its disk is full: it accepts no writes of clients",
        "node 1: the disk of /d is full",
    ):
        assert line in shown


def test_activity_of_meta_services_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    node = pb.Node(node_id=1001, kind=pb.META, address="h:1")
    found = cluster_commands.describe("threefs://h:0", pb.GetStatusReply(nodes=[pb.NodeStatus(node=node, alive=True)]))
    statistics = {"names_per_s": 1234.5, "transactions_per_s": 20.0, "again_per_s": 0.25, "removals_waiting": 0}
    for one, line in (
        (statistics, "node 1001: 1,234 names/s, 20 transactions/s, 0.2/s repeated; no removals wait"),
        (statistics | {"removals_waiting": 7}, "; 7 removals wait"),
        (None, "node 1001: it does not answer a request for its statistics"),
    ):
        found["nodes"][0]["meta"] = one
        cluster_commands.print_status(found)
        assert line in capsys.readouterr().out


def test_full_stores_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    disk = common_pb2.StoreDisk(directory="/srv/kv", capacity_bytes=1 << 30, needed_bytes=3 << 20)
    node = pb.Node(node_id=1001, kind=pb.META, address="h:1")
    for disk.full, shown in (False, False), (True, True):
        reply = pb.GetStatusReply(nodes=[pb.NodeStatus(node=node, alive=True)], store_disk=disk)
        found = cluster_commands.describe("threefs://h:0", reply)
        statistics = {"names_per_s": 0, "transactions_per_s": 0, "again_per_s": 0, "removals_waiting": 0}
        disk_of_meta = cluster_commands.store_disk(meta_pb2.StatisticsReply(store_disk=disk))
        found["nodes"][0]["meta"] = statistics | {"store_disk": disk_of_meta}
        cluster_commands.print_status(found)
        out = capsys.readouterr().out
        for service in ("the manager", "node 1001"):
            words = "the disk of its store /srv/kv is full: it refuses all changes until 3.0 MiB are free there"
            assert (f"{service}: {words}" in out) is shown
    assert cluster_commands.describe("threefs://h:0", pb.GetStatusReply())["store_disk"] is None


@pytest.mark.parametrize(
    ("node", "words"),
    [
        ({"alive": True, "heard": True, "ended": False, "silent_ms": 5}, "alive"),
        ({"alive": False, "heard": True, "ended": True, "silent_ms": 1200}, "ended, last heard 1.2 s ago"),
        ({"alive": False, "heard": True, "ended": False, "silent_ms": 4000}, "silent for 4.0 s"),
        (
            {"alive": False, "heard": False, "ended": False, "silent_ms": 1_179_900},
            "no heartbeat since the manager started 1179.9 s ago",
        ),
    ],
)
def test_what_is_known_of_a_process_is_said_and_no_more(node: dict[str, object], words: str) -> None:
    assert cluster_commands.state_of(node) == words


def test_chains_that_cannot_be_written_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    def chain(number: int, *states: pb.PublicState) -> pb.Chain:
        members = [pb.ChainMember(target_id=100 * n + 1, state=state) for n, state in enumerate(states, 1)]
        return pb.Chain(chain_id=number, version=1, members=members)

    chains = [
        chain(1, pb.SERVING, pb.SERVING, pb.OFFLINE),
        chain(2, pb.SERVING, pb.SYNCING, pb.OFFLINE),
        chain(3, pb.LASTSRV, pb.OFFLINE, pb.OFFLINE),
    ]
    reply = pb.GetStatusReply(
        cluster_id="c", chains=chains, tables=[pb.ChainTable(table_id=1, chains=[1, 2, 3], min_replicas=2)]
    )
    found = cluster_commands.describe("threefs://h:0", reply)
    assert [(c["serving"], c["takes_writes"]) for c in found["chains"]] == [(2, True), (1, False), (0, False)]
    cluster_commands.print_status(found)
    shown = capsys.readouterr().out
    assert "3 chains; targets: 3 serving, 4 offline, 1 syncing, 1 lastsrv; a write needs 2 of 3 copies" in shown
    assert "chain 1 " not in shown
    assert "chain 2 has 1 of 3 copies, and a write needs 2: it serves reads, and its writes wait" in shown
    assert "chain 3 has 0 of 3 copies: it waits for target 101" in shown and "threefs chain accept-loss 3" in shown
    assert "cannot change" not in shown
    reply.failure = "its disk is full\x1b"
    found = cluster_commands.describe("threefs://h:0", reply)
    cluster_commands.print_status(found)
    assert "the manager cannot change chains now" in (shown := capsys.readouterr().out)
    assert "its disk is full" in shown and "\x1b" not in shown
    reply.awaited_nodes.extend([3, 5])
    cluster_commands.print_status(cluster_commands.describe("threefs://h:0", reply))
    assert "awaited: 3, 5" in (shown := capsys.readouterr().out) and "chain accept-unheard 3 5" in shown


def test_a_copy_too_many_is_explained_while_a_chain_moves(capsys: pytest.CaptureFixture[str]) -> None:
    def members(count: int) -> list[pb.ChainMember]:
        return [
            pb.ChainMember(target_id=number, state=pb.SERVING, leaving=number == 4) for number in range(1, count + 1)
        ]

    reply = pb.GetStatusReply(
        chains=[pb.Chain(chain_id=1, members=members(3)), pb.Chain(chain_id=2, members=members(4))],
        tables=[pb.ChainTable(table_id=1, chains=[1, 2], min_replicas=2)],
        moves=[pb.Move(chain_id=2, added_target=3, added_node=9, removed_target=4)],
    )
    found = cluster_commands.describe("threefs://h:0", reply)
    assert [member["leaving"] for member in found["chains"][1]["members"]] == [False, False, False, True]
    cluster_commands.print_status(found)
    shown = capsys.readouterr().out
    assert "a write needs 2 of 3 copies\n" in shown and "1 chain moves to other disks" in shown
