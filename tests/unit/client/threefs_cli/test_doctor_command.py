import json
import socket
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from threefs_cli.main import main


def doctor(*arguments: str) -> tuple[int, dict[str, Any]]:
    result = CliRunner().invoke(main, ["doctor", "--json", *arguments])
    return result.exit_code, json.loads(result.stdout)


def codes(found: dict[str, Any]) -> set[str]:
    return {reason["code"] for reason in found["reasons"]}


@pytest.fixture
def taken() -> Any:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        yield listener.getsockname()[1]


def test_directories_and_ports_of_settings_are_tried(tmp_path: Path, taken: int) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    settings = tmp_path / "storage.toml"
    settings.write_text(f'data_dir = "{data}"\nport = {taken}\nmetrics_port = 0\n', encoding="utf-8")
    code, found = doctor(str(settings))
    assert code == 2 and found["health"] == "ERR" and "port_refused" in codes(found)
    (measured,) = found["measured"]["directories"]
    assert (measured["path"], measured["mode"], measured["existing"]) == (str(data), "0700", str(data))
    assert measured["syncs"]["median_s"] > 0 and measured["file_system"]["kind"]
    assert list(data.iterdir()) == []
    shown = CliRunner().invoke(main, ["doctor", str(settings)])
    assert shown.exit_code == 2 and shown.stdout.startswith("ERR\n") and f"{data}: " in shown.stdout
    assert f"no service can listen at 127.0.0.1:{taken}" in shown.stdout


def test_the_exit_code_is_the_severity(tmp_path: Path) -> None:
    code, found = doctor()
    assert {"OK": 0, "WARN": 1, "ERR": 2}[found["health"]] == code
    missing = tmp_path / "a" / "b"
    code, found = doctor("--data-dir", str(missing))
    assert code >= 1 and "directory_missing" in codes(found) and not missing.exists()
    (tmp_path / "file").write_bytes(b"")
    code, found = doctor("--data-dir", str(tmp_path / "file"))
    assert code == 2 and "directory_unusable" in codes(found)
    code, found = doctor("--data-dir", "/dev/shm")
    assert code == 2 and {"disk_in_memory", "directory_open"} <= codes(found)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["--listen", "nonsense"], "nonsense"), (["/no/such/settings.toml"], "the settings file /no/such/settings.toml")],
)
def test_a_wrong_command_line_is_refused(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(main, ["doctor", *arguments])
    assert result.exit_code == 2 and words in result.output and not result.stdout
