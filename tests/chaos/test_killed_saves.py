from pathlib import Path

from tests.chaos.killed_saves import run
from tests.harness.cluster import LocalCluster

KILLS = 6  # `python -m tests.chaos.killed_saves` makes 200


def test_behind_every_kill_there_is_a_valid_checkpoint_and_no_wrong_one(tmp_path: Path) -> None:
    with LocalCluster(tmp_path) as cluster:
        found = run(cluster, KILLS, seed=3)
    assert sum(found.values()) == KILLS
