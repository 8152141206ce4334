import base64
import os
from pathlib import Path

from threefs_client import FileSystem

from tests.support.command_line import CommandLine


def test_files_in_and_out(threefs: CommandLine, fs: FileSystem, tmp_path: Path) -> None:
    content = os.urandom(100_000)
    (tmp_path / "a").write_bytes(content)
    (tmp_path / "b").write_bytes(b"b")
    fs.mkdir("/transfer")
    facts = threefs.json("put", str(tmp_path / "a"), str(tmp_path / "b"), "/transfer")
    assert (facts["files"], facts["length_bytes"]) == (2, 100_001)
    assert threefs.ok("get", "/transfer/a", str(tmp_path / "back")).startswith("1 files, 97.7 KiB in ")
    assert (tmp_path / "back").read_bytes() == content
    assert threefs.run("cat", "/transfer/b", "/transfer/a").stdout_bytes == b"b" + content
    (row,) = threefs.json("cat", "/transfer/a")
    assert base64.b64decode(row["base64"]) == content


def test_a_directory_goes_under_a_new_name_or_into_one_that_is_there(threefs: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "tree" / "below").mkdir(parents=True)
    (tmp_path / "tree" / "below" / "file").write_bytes(b"x")
    os.mkfifo(tmp_path / "tree" / "pipe")
    result = threefs.run("put", "-r", str(tmp_path / "tree"), "/placed")
    assert result.exit_code == 0 and "skipped" in result.stderr
    threefs.ok("put", "-r", str(tmp_path / "tree"), "/placed")
    assert threefs.ok("ls", "/placed") == "below/\ntree/\n"
    (tmp_path / "out").mkdir()
    threefs.ok("get", "-r", "/placed/tree", str(tmp_path / "out"))
    assert (tmp_path / "out" / "tree" / "below" / "file").read_bytes() == b"x"


def test_what_cannot_be_copied(threefs: CommandLine, tmp_path: Path) -> None:
    assert "-r" in threefs.error("put", str(tmp_path), "/nowhere")
    assert "-r" in threefs.error("get", "/", str(tmp_path / "x"))
    assert "missing" in threefs.error("put", str(tmp_path / "missing"), "/nowhere")
    assert "/missing" in threefs.error("get", "/missing", str(tmp_path / "x"))
    assert "/missing" in threefs.error("cat", "/missing")
    threefs.ok("mkdir", "-p", "/a-directory")
    assert "/a-directory is a directory" in threefs.error("cat", "/a-directory")
    assert not (tmp_path / "x").exists()
