from pathlib import Path

from threefs_cli.demo import run as demonstration
from threefs_cli.local_cluster import LocalCluster


def test_the_demonstration_holds_with_a_small_checkpoint(tmp_path: Path) -> None:
    told: list[str] = []
    report = demonstration.run(tmp_path / "cluster", told.append, checkpoint_bytes=8 << 20)
    assert report.ok, report.as_json()
    names = [step.name for step in report.steps]
    assert names.index("kill a storage process") < names.index("read files, 2 of 3 left")
    assert report.loopback_bytes_per_s > 0 and told
    assert not LocalCluster(tmp_path / "cluster").running()


def test_a_cluster_that_does_not_start_is_a_check_that_does_not_hold(tmp_path: Path) -> None:
    (tmp_path / "cluster").mkdir()
    (tmp_path / "cluster" / "in the way").write_text("")
    report = demonstration.run(tmp_path / "cluster", lambda line: None)
    assert not report.ok
    assert "not empty" in report.steps[-1].checks[-1][0]
