"""All disks of a chain are lost at once: what lies on other chains is read, and an administrator brings it back."""

import shutil
import signal
import time
from pathlib import Path

import pytest

from tests.harness.cluster import LocalCluster
from tests.harness.command_line import CommandLine
from threefs.errors import NotServing
from threefs.ids import ChainId
from threefs.rpc.methods import GET_ROUTING
from threefs.wire import manager_pb2 as pb


def wait_for(threefs: CommandLine, states: set[str]) -> None:
    deadline = time.monotonic() + 60
    while True:
        members = [m for chain in _status(threefs)["chains"] for m in chain["members"]]
        if {member["state"] for member in members} == states:
            return
        assert time.monotonic() < deadline, members
        time.sleep(0.1)


def _status(threefs: CommandLine) -> dict[str, list[dict[str, list[dict[str, str]]]]]:
    import json

    status: dict[str, list[dict[str, list[dict[str, str]]]]] = json.loads(threefs.run("status", "--json").stdout)
    return status


@pytest.mark.timeout(300)
def test_an_accepted_loss_brings_chains_back(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, lease_s=3.0, targets_per_disk=1) as cluster:
        threefs = CommandLine(cluster.address)
        with cluster.connect() as fs:
            fs.write_file("/before", b"x" * 100_000)
        wait_for(threefs, {"serving"})  # a program that starts slowly is put out, and returns
        # At once, however busy the machine is: the first would be put out while the others are heard.
        for program in cluster.storage.values():
            program.process.send_signal(signal.SIGSTOP)
        for program in cluster.storage.values():
            program.kill()
        wait_for(threefs, {"lastsrv"})
        for node, program in cluster.storage.items():
            (target,) = (tmp_path / f"storage-{node}" / "data").glob("target-*")
            shutil.rmtree(target)
            program.start()
        time.sleep(6.0)
        wait_for(threefs, {"lastsrv"})  # none of them has what it should have
        assert "threefs chain accept-loss 1" in threefs.run("status").stdout
        refused = threefs.run("chain", "accept-loss", "1")
        assert refused.exit_code == 2 and "has 0 chunks, in a new store" in refused.stderr
        wait_for(threefs, {"lastsrv"})
        dry = threefs.ok("chain", "accept-loss", "1", "--dry-run")
        assert "has 0 chunks, in a new store" in dry and "would be served by target" in dry
        assert "/before loses 1 of its 1 chunk on the chain" in dry
        found = threefs.json("chain", "accept-loss", "1", "--dry-run")
        assert found["dry_run"] is True and found["more_files"] == found["other_files"] == 0
        assert found["files"] == [{"path": "/before", "chunks": 1, "lacking": 1}]
        wait_for(threefs, {"lastsrv"})
        done = threefs.run("chain", "accept-loss", "1", "--yes")
        assert done.exit_code == 0 and "/before loses 1 of its 1 chunk" in done.stderr
        assert "no command finds that afterwards" in done.stdout
        wait_for(threefs, {"serving"})
        assert "clean" in threefs.ok("fsck"), "a chunk that is gone everywhere is no other than a hole"
        with cluster.connect() as fs:
            assert fs.read_file("/before") == bytes(100_000)
            fs.write_file("/after", b"y" * 100_000)
            assert fs.read_file("/after") == b"y" * 100_000


@pytest.mark.timeout(300)
def test_files_whose_chunks_lie_on_other_chains_are_read(tmp_path: Path) -> None:
    """No file was whose stripe has that chain: with as few chains as here that was every file."""
    with LocalCluster(tmp_path, replicas=1, targets_per_disk=1, lease_s=3.0) as cluster:
        names = [f"/{number}" for number in range(12)]
        with cluster.connect() as fs:
            assert fs.write_many([(name, name.encode() * 9) for name in names]) == [None] * 12
        cluster.storage[3].kill()
        wait_for(CommandLine(cluster.address), {"serving", "lastsrv"})
        routing = cluster.ask(GET_ROUTING, pb.GetRoutingRequest()).routing
        table = [ChainId(number) for number in routing.tables[0].chains]
        (out,) = (chain.chain_id for chain in routing.chains if chain.members[0].state != pb.SERVING)
        with cluster.connect() as fs:
            served = 0
            for name in names:
                layout = fs.stat(name).layout
                assert layout is not None and layout.stripe == 3
                if layout.chain_of(table, 0) != out:
                    assert fs.read_file(name) == name.encode() * 9
                    served += 1
                    continue
                with pytest.raises(NotServing, match=f"chain {out} on nodes 3 has no serving target"):
                    fs.read_batch([(name, 0, 9)], timeout_s=0.5)
            assert served
