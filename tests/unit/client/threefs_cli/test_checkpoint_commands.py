import contextlib
import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner
from threefs_cli import checkpoint_commands
from threefs_cli.main import main

from threefs.errors import AccessDenied, Corrupt


def test_a_checkpoint_that_cannot_be_verified_keeps_the_others_from_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended the command, without a word of those that had been verified before, perhaps for hours."""

    @contextlib.contextmanager
    def connected(selector: object) -> Iterator[None]:
        yield None

    def read_index(fs: object, path: str) -> None:
        raise AccessDenied(path) if path == "/closed" else Corrupt(f"{path} is damaged")

    monkeypatch.setattr(checkpoint_commands, "_connected", connected)
    monkeypatch.setattr(checkpoint_commands, "read_index", read_index)
    found = CliRunner().invoke(main, ["ckpt", "verify", "/a", "/closed", "/b"])
    assert found.exit_code == 1 and found.stdout == "/a: /a is damaged\n/b: /b is damaged\n"
    assert "/closed" in found.stderr
    found = CliRunner().invoke(main, ["ckpt", "verify", "--json", "/a", "/closed", "/b"])
    assert found.exit_code == 1 and [row["path"] for row in json.loads(found.stdout)] == ["/a", "/b"]
