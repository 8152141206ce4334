"""`threefs ckpt`, by the command line and real services."""

import json
from pathlib import Path

import numpy as np
import pytest
import threefs_checkpoint
from threefs_checkpoint import CheckpointDirectory, CheckpointManager, Derived, Every
from threefs_checkpoint.state import State
from threefs_client import FileSystem

from tests.harness.command_line import CommandLine

ROOT = "/ckpt-commands"


def state_of(step: int) -> State:
    return {"model.w": np.full((300, 100), step, np.float32), "optim.m": np.zeros(50_000)}


@pytest.fixture(scope="module")
def root(fs: FileSystem) -> str:
    manager = CheckpointManager(fs, ROOT, every=Every(steps=1), chunk_bytes=64 << 10)
    for step in (100, 200):
        masters = {"model.p": Derived("bfloat16", "model.w")}
        manager.save(step, state_of(step), metadata={"tokens": step}, masters=masters)
    manager.save(150, state_of(150), model_only=True)
    manager.close()
    return ROOT


FIRST, SECOND, MODEL = (f"{ROOT}/{name}" for name in ("step-000000000100", "step-000000000200", "model-000000000150"))


def test_checkpoints_are_listed_and_shown(threefs: CommandLine, root: str) -> None:
    rows = threefs.json("ckpt", "ls", root)
    assert [(row["step"], row["kind"], row["tensors"]) for row in rows] == [
        (100, "step", 3),
        (150, "model", 1),
        (200, "step", 3),
    ]
    assert "model-000000000150" in threefs.ok("ckpt", "ls", root)
    shown = threefs.json("ckpt", "show", SECOND)
    assert shown["metadata"] == {"tokens": 200} and shown["world"] == 1
    assert {row["name"]: row["shape"] for row in shown["tensors"]} == {"model.w": [300, 100], "optim.m": [50_000]}
    assert shown["derived"] == [{"name": "model.p", "dtype": "bfloat16", "shape": [300, 100], "master": "model.w"}]
    assert "from model.w" in threefs.ok("ckpt", "show", SECOND)


def test_they_are_compared(threefs: CommandLine, root: str) -> None:
    found = threefs.run("ckpt", "diff", FIRST, SECOND)
    assert found.exit_code == 1
    assert "other content: model.w" in found.output and "1 tensor is the same" in found.output
    assert "other content: model.p" in found.output and "metadata of the user are not the same" in found.output
    assert threefs.json("ckpt", "diff", FIRST, FIRST)["equal"] is True


def test_damage_is_found_by_what_storage_has_recorded(threefs: CommandLine, root: str, fs: FileSystem) -> None:
    assert threefs.ok("ckpt", "verify", FIRST, "--read").endswith(": valid\n")
    path = f"{root}-damaged"
    threefs_checkpoint.save(fs, path, state_of(1), chunk_bytes=64 << 10)
    with fs.open(f"{path}/data-00000", "rb+") as file:
        file.seek(70_000)
        file.write(b"?")
    found = threefs.run("ckpt", "verify", FIRST, path)
    assert found.exit_code == 1
    assert f"{FIRST}: valid" in found.output and f"chunk 1 of {path}/data-00000 must have" in found.output


def test_export_import_and_removal(threefs: CommandLine, root: str, fs: FileSystem, tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    assert threefs.json("ckpt", "export", SECOND, str(file))["length_bytes"] == file.stat().st_size
    threefs.ok("ckpt", "import", str(file), f"{root}/imported")
    loaded = threefs_checkpoint.load(fs, f"{root}/imported")
    assert set(loaded) == {"model.w", "model.p", "optim.m"} and (loaded["model.w"] == 200).all()
    assert (loaded["model.p"] == 0x4348).all()  # 200 in bfloat16
    threefs.ok("ckpt", "export", SECOND, str(file), "--tensor", "model.p")
    assert file.stat().st_size < 100_000
    threefs.ok("ckpt", "rm", f"{root}/imported")
    assert not [entry.name for entry in fs.list(root) if entry.name.startswith(("imported", "removing"))]
    fs.mkdir(f"{root}/other")
    threefs.ok("ckpt", "import", str(file), f"{root}/imported")
    found = threefs.run("ckpt", "rm", "--json", f"{root}/other", f"{root}/imported")
    assert found.exit_code == 1 and fs.exists(f"{root}/other")
    assert json.loads(found.stdout) == {"removed": [f"{root}/imported"]}


def test_errors_say_what_the_path_lacks(threefs: CommandLine, root: str, fs: FileSystem, tmp_path: Path) -> None:
    fs.mkdir(f"{root}/imports")
    assert f"{root}/imports has no checkpoints of a job" in threefs.ok("ckpt", "ls", f"{root}/imports")
    for command in ("show", "verify", "rm"):
        found = threefs.run("ckpt", command, root)
        assert found.exit_code == 1
        assert f"{root} is no checkpoint: there is no file {root}/index" in found.output + found.stderr
    file = tmp_path / "w.safetensors"
    threefs.ok("ckpt", "export", MODEL, str(file))
    found = threefs.run("ckpt", "import", str(file), f"{root}/absent/model")
    assert found.exit_code == 1 and "Traceback" not in found.stderr
    assert f"there is no directory {root}/absent for the checkpoint {root}/absent/model; make it first" in found.stderr
    fs.write_file(f"{root}/imports/notes.txt", b"mine")
    found = threefs.run("ckpt", "import", str(file), f"{root}/imports")
    assert found.exit_code == 1 and f"{root}/imports is there and is no checkpoint" in found.stderr
    assert bytes(fs.read_file(f"{root}/imports/notes.txt")) == b"mine"


def test_what_somebody_has_put_among_the_checkpoints_is_named(threefs: CommandLine, fs: FileSystem) -> None:
    fs.mkdir("/ckpt-strange")
    good, file, empty = (f"/ckpt-strange/step-{step:012d}" for step in (1, 2, 3))
    threefs_checkpoint.save(fs, good, {"[/w]": np.zeros(3)})
    fs.write_file(file, b"a note")
    fs.mkdir(f"{empty}/index", parents=True)
    problems = [row.get("problem") for row in threefs.json("ckpt", "ls", "/ckpt-strange")]
    assert problems[0] is None and all(problems[1:])
    assert "[/w]" in threefs.ok("ckpt", "show", good)
    found = threefs.run("ckpt", "verify", good, file, empty)
    assert found.exit_code == 1 and f"{good}: valid" in found.output and found.output.count("\n") == 3
    newest = CheckpointDirectory(fs, "/ckpt-strange").newest_valid()
    assert newest is not None and newest[0].step == 1


def test_directories_of_torch(threefs: CommandLine, root: str, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed (make ml-venv)")
    directory = tmp_path / "dcp"
    length = threefs.json("ckpt", "export", SECOND, str(directory), "--format", "dcp")["length_bytes"]
    assert length == 300 * 100 * (4 + 2) + 50_000 * 8 and (directory / ".metadata").exists()
    found = threefs.run("ckpt", "import", str(directory), f"{root}/of-torch")
    assert found.exit_code == 2 and "--format dcp imports one" in found.stderr
    assert threefs.json("ckpt", "import", str(directory), f"{root}/of-torch", "--format", "dcp")["left_out"] == []
    assert "3 tensors are the same" in threefs.run("ckpt", "diff", SECOND, f"{root}/of-torch").output
    threefs.ok("ckpt", "rm", f"{root}/of-torch")
