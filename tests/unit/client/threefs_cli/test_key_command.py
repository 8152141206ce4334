import json
from pathlib import Path

from click.testing import CliRunner
from threefs_cli.main import main

from threefs import cluster_key


def test_it_makes_a_key_and_never_replaces_one(tmp_path: Path) -> None:
    where = str(tmp_path / "key")
    made = CliRunner().invoke(main, ["key", where, "--json"])
    assert made.exit_code == 0 and json.loads(made.stdout) == {"key_file": where}
    key = cluster_key.read(tmp_path / "key")
    again = CliRunner().invoke(main, ["key", where])
    assert again.exit_code == 1 and "never replaced" in again.output
    assert cluster_key.read(tmp_path / "key") == key
    nowhere = CliRunner().invoke(main, ["key", str(tmp_path / "missing" / "key")])
    assert nowhere.exit_code == 2 and "does not exist" in nowhere.output
