import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from threefs_cli.main import main

from tests.harness.other_user import NOBODY, needs_root
from tests.harness.processes import environment
from threefs.kv import dump as dumps
from threefs.kv.engine_api import Pair
from threefs.kv.rocks import RocksEngine


def make_store(directory: Path, value: bytes) -> str:
    async def work() -> None:
        store = await RocksEngine.open(directory)
        for number in range(2000):
            tx = store.begin()
            tx.set(b"%05d" % number, value)
            await tx.commit()
        await store.close()

    asyncio.run(work())
    return f"rocks://{directory}"


@needs_root
def test_the_store_of_another_user_is_not_opened_by_root(tmp_path: Path) -> None:
    """Its service runs as that user, and could not write to the files that root has made."""
    store = make_store(tmp_path / "kv", b"a")
    for path in (tmp_path / "kv", *(tmp_path / "kv").iterdir()):
        os.chown(path, NOBODY, NOBODY)
    found = CliRunner().invoke(main, ["meta", "dump", "--engine", store, str(tmp_path / "dump")])
    assert found.exit_code == 1 and f"belongs to user {NOBODY}" in found.output
    assert {path.stat().st_uid for path in (tmp_path / "kv").iterdir()} == {NOBODY}


@needs_root
def test_no_store_is_made_by_root_in_the_directory_of_another_user(tmp_path: Path) -> None:
    file, data = tmp_path / "dump", tmp_path / "data"
    CliRunner().invoke(main, ["meta", "dump", "--engine", make_store(tmp_path / "kv", b"a"), str(file)])
    data.mkdir(mode=0o700)
    os.chown(data, NOBODY, NOBODY)
    found = CliRunner().invoke(main, ["meta", "load", "--engine", f"rocks://{data}/kv", str(file)])
    assert found.exit_code == 1 and f"{data} belongs to user {NOBODY}" in found.output
    assert not list(data.iterdir())
    os.chown(data, 0, 0)
    assert CliRunner().invoke(main, ["meta", "load", "--engine", f"rocks://{data}/kv", str(file)]).exit_code == 0


@pytest.mark.processes
def test_of_two_dumps_to_one_file_none_spoils_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both wrote to one unfinished file: what the first to end had reported was changed by the other one."""
    first, second = make_store(tmp_path / "a", b"a" * 100), make_store(tmp_path / "b", b"b" * 90)
    file, put = tmp_path / "dump", dumps.Writer.put
    others: list[subprocess.CompletedProcess[str]] = []

    def put_and_be_overtaken(self: dumps.Writer, pair: Pair) -> None:
        put(self, pair)
        if pair[0] == b"01500" and not others:
            command = [sys.executable, "-m", "threefs_cli", "meta", "dump", "--engine", second, str(file)]
            others.append(subprocess.run(command, capture_output=True, text=True, env=environment(), check=False))

    monkeypatch.setattr(dumps.Writer, "put", put_and_be_overtaken)
    overtaken = CliRunner().invoke(main, ["meta", "dump", "--engine", first, str(file)])
    assert others[0].returncode == 0, others[0].stderr
    with file.open("rb") as source:
        assert dumps.check(source).records == 2000
    assert overtaken.exit_code == 1 and "exists already" in overtaken.output
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["dump"]
