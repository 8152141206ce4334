import base64
import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

from threefs_client import FileSystem

from tests.harness.command_line import CommandLine
from tests.harness.processes import environment


def test_files_in_and_out(threefs: CommandLine, fs: FileSystem, tmp_path: Path) -> None:
    content = os.urandom(100_000)
    (tmp_path / "a").write_bytes(content)
    (tmp_path / "b").write_bytes(b"b")
    fs.mkdir("/transfer")
    facts = threefs.json("put", str(tmp_path / "a"), str(tmp_path / "b"), "/transfer")
    assert (facts["files"], facts["length_bytes"]) == (2, 100_001)
    assert threefs.ok("get", "/transfer/a", str(tmp_path / "back")).startswith("1 file, 97.7 KiB in ")
    assert (tmp_path / "back").read_bytes() == content
    assert threefs.run("cat", "/transfer/b", "/transfer/a").stdout_bytes == b"b" + content
    (row,) = threefs.json("cat", "/transfer/a")
    assert base64.b64decode(row["base64"]) == content


def test_a_directory_goes_under_a_new_name_or_into_one_that_is_there(threefs: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "tree" / "below").mkdir(parents=True)
    (tmp_path / "tree" / "below" / "file").write_bytes(b"x")
    os.mkfifo(tmp_path / "tree" / "pipe")
    result = threefs.run("put", "-r", str(tmp_path / "tree"), "/placed")
    assert result.exit_code == 1 and "skipped" in result.stderr and "1 file was not copied" in result.stderr
    result = threefs.run("put", "-r", str(tmp_path / "tree"), "/placed-again", "--json")
    assert result.exit_code == 1 and json.loads(result.stdout)["skipped"] == [str(tmp_path / "tree" / "pipe")]
    said = threefs.error("put", str(tmp_path / "tree" / "pipe"), "/placed/pipe")
    assert f"{tmp_path}/tree/pipe is neither a file" in said
    (tmp_path / "tree" / "pipe").unlink()
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
    (tmp_path / "whole").write_bytes(b"whole")
    threefs.ok("put", str(tmp_path / "whole"), "/whole")
    found = threefs.run("get", "/missing", "/whole", "-")
    assert (found.exit_code, found.stdout) == (1, "whole") and "/missing" in found.stderr
    threefs.ok("mkdir", "-p", "/a-directory")
    assert "/a-directory is a directory" in threefs.error("cat", "/a-directory")
    assert not (tmp_path / "x").exists()


def test_what_a_user_of_the_cluster_prepares_harms_nobody_who_fetches_it(
    threefs: CommandLine, fs: FileSystem, tmp_path: Path
) -> None:
    """A set-user-id program, and links by which a second `get` would write elsewhere."""
    (tmp_path / "victims").mkdir()
    (tmp_path / "victims" / "file").write_text("precious")
    fs.mkdir("/prepared")
    fs.write_file("/prepared/tool", b"#!/bin/sh")
    fs.chmod("/prepared/tool", 0o6755)
    fs.symlink(str(tmp_path / "victims" / "file"), "/prepared/x")
    fs.symlink(str(tmp_path / "victims"), "/prepared/d")
    threefs.ok("get", "-r", "/prepared", str(tmp_path / "out"))
    assert (tmp_path / "out" / "tool").stat().st_mode & 0o7000 == 0
    fs.unlink("/prepared/x")
    fs.unlink("/prepared/d")
    fs.write_file("/prepared/x", b"overwritten")
    fs.mkdir("/prepared/d")
    fs.write_file("/prepared/d/cron", b"evil")
    (tmp_path / "again").mkdir()
    os.rename(tmp_path / "out", tmp_path / "again" / "prepared")
    assert "nothing is written through it" in threefs.error("get", "-r", "/prepared", str(tmp_path / "again"))
    (tmp_path / "again" / "prepared" / "d").unlink()
    threefs.ok("get", "-r", "/prepared", str(tmp_path / "again"))
    assert (tmp_path / "again" / "prepared" / "x").read_bytes() == b"overwritten"
    assert sorted(os.listdir(tmp_path / "victims")) == ["file"]
    assert (tmp_path / "victims" / "file").read_text() == "precious"


def test_put_writes_through_no_link_that_others_have_made(threefs: CommandLine, fs: FileSystem, tmp_path: Path) -> None:
    fs.mkdir("/shared/tree", parents=True)
    fs.mkdir("/of-root")
    fs.write_file("/of-root/file", b"precious")
    fs.symlink("/of-root/file", "/shared/tree/file")
    fs.symlink("/of-root", "/shared/tree/sub")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "file").write_text("new")
    (tmp_path / "tree" / "file").chmod(0o6755)
    threefs.ok("put", "-r", str(tmp_path / "tree"), "/shared")
    assert fs.read_file("/of-root/file") == b"precious" and fs.read_file("/shared/tree/file") == b"new"
    assert fs.stat("/shared/tree/file").mode & 0o7777 == 0o755
    (tmp_path / "tree" / "sub").mkdir()
    (tmp_path / "tree" / "sub" / "file").write_text("new")
    assert "nothing is written through it" in threefs.error("put", "-r", str(tmp_path / "tree"), "/shared")
    assert fs.read_file("/of-root/file") == b"precious"
    assert [entry.name for entry in fs.list("/shared/tree")] == ["file", "sub"]


def test_standard_input_and_output(threefs: CommandLine, fs: FileSystem) -> None:
    fs.mkdir("/streams")
    content = os.urandom(3 << 20)
    command = [sys.executable, "-m", "threefs_cli", "put", "-", "/streams/a", "--address", threefs.address]
    for part in (b"old", content):
        subprocess.run(command, input=part, env=environment(), check=True, timeout=100)
    assert fs.read_file("/streams/a") == content
    command[3:6] = ["get", "/streams/a", "-"]
    done = subprocess.run(command, capture_output=True, env=environment(), check=True, timeout=100)
    assert done.stdout == content
    assert "is a directory" in threefs.error("put", "-", "/streams")
    assert threefs.run("put", "-", "x", "/streams").exit_code == 2
    assert threefs.run("get", "-r", "/streams", "-").exit_code == 2


def test_a_name_of_a_standard_stream_is_no_file_to_replace(
    threefs: CommandLine, fs: FileSystem, tmp_path: Path
) -> None:
    """`/dev/stdout` leads to a file where the shell has redirected it to one."""
    content = os.urandom(10 << 20)
    fs.write_file("/named", content)
    (tmp_path / "link").symlink_to("/dev/stdout")
    for name in ("/dev/stdout", "/dev/fd/1", str(tmp_path / "link")):
        (tmp_path / "out").write_bytes(b"before ")
        command = [sys.executable, "-m", "threefs_cli", "get", "/named", name, "--address", threefs.address]
        with (tmp_path / "out").open("ab") as out:
            subprocess.run(command, stdout=out, env=environment(), check=True, timeout=100)
        assert (tmp_path / "out").read_bytes() == b"before " + content
        assert subprocess.run(command, capture_output=True, env=environment(), timeout=100).stdout == content
    assert (tmp_path / "link").is_symlink() and os.path.islink("/dev/stdout")
    assert "/dev/fd/9999: Bad file descriptor" in threefs.error("get", "/named", "/dev/fd/9999")
    assert threefs.run("get", "-r", "/named", "/dev/stdout").exit_code == 2


def test_no_name_is_no_destination(threefs: CommandLine, fs: FileSystem) -> None:
    fs.write_file("/one", b"1")
    result = threefs.run("get", "/one", "")
    assert result.exit_code == 2 and "an empty name is no place" in result.stderr


def test_what_is_no_file_keeps_no_other_from_being_fetched(
    threefs: CommandLine, fs: FileSystem, tmp_path: Path
) -> None:
    fs.write_file("/mixed/file", b"x", parents=True)
    fs.mknod("/mixed/pipe", stat.S_IFIFO | 0o644)
    result = threefs.run("get", "-r", "/mixed", str(tmp_path / "out"))
    assert result.exit_code == 1 and "skipped /mixed/pipe" in result.stderr and "1 file was not" in result.stderr
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["file"]
    result = threefs.run("get", "-r", "/mixed", str(tmp_path / "out"), "--json")
    assert result.exit_code == 1 and json.loads(result.stdout)["skipped"] == ["/mixed/pipe"]
    assert "/mixed/pipe is neither a file nor" in threefs.error("get", "/mixed/pipe", str(tmp_path / "x"))


def test_an_error_names_what_the_user_named(threefs: CommandLine, fs: FileSystem, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    said = threefs.error("put", str(tmp_path / "a"), "/no-such-directory/a")
    assert "/no-such-directory/a" in said and ".put-" not in said
    assert "`threefs mkdir -p /no-such-directory` makes its directory" in said


def test_a_put_that_fails_leaves_nothing_in_the_trash_either(
    threefs: CommandLine, fs: FileSystem, tmp_path: Path
) -> None:
    fs.mkdir("/put-past-its-quota")
    fs.trash.set("/put-past-its-quota", 3600)
    fs.quotas.set("/put-past-its-quota", limit_bytes=1 << 20)
    fs.write_file("/put-past-its-quota/old", b"x" * (1 << 20))
    (tmp_path / "large").write_bytes(bytes(32 << 20))
    while (quota := fs.quotas.show("/put-past-its-quota")) is None or quota.counting or not quota.used_bytes:
        time.sleep(0.1)
    assert "/put-past-its-quota/new cannot become longer" in threefs.error(
        "put", str(tmp_path / "large"), "/put-past-its-quota/new"
    )
    assert [entry.name for entry in fs.list("/put-past-its-quota")] == ["old"]
    assert not [item for item in fs.trash.list() if item.original.startswith("/put-past-its-quota")]


def test_directories_keep_their_permissions(threefs: CommandLine, fs: FileSystem, tmp_path: Path) -> None:
    """A private directory is not opened to others by the copy, and one without write permission is filled."""
    source, back = tmp_path / "modes", tmp_path / "back"
    modes = {"private": 0o700, "private/fixed": 0o500, "private/fixed/deeper": 0o550}
    (source / "private" / "fixed" / "deeper").mkdir(parents=True)
    (source / "private" / "fixed" / "deeper" / "file").write_text("x")
    for name, mode in reversed(modes.items()):
        (source / name).chmod(mode)
    threefs.ok("put", "-r", str(source), "/above/modes")
    threefs.ok("get", "-r", "/above/modes", str(back))
    assert fs.stat("/above").mode == 0o755
    for name, mode in modes.items():
        assert fs.stat(f"/above/modes/{name}").mode == mode, name
        assert (back / name).stat().st_mode & 0o777 == mode, name
    assert (back / "private" / "fixed" / "deeper" / "file").read_text() == "x"
    fs.chmod("/above/modes/private", 0o711)
    (back / "private").chmod(0o711)
    threefs.ok("put", "-r", str(source / "private"), "/above/modes")
    threefs.ok("get", "-r", "/above/modes/private", str(back))
    assert fs.stat("/above/modes/private").mode == (back / "private").stat().st_mode & 0o777 == 0o711


def test_no_copy_of_a_command_replaces_another_one(threefs: CommandLine, fs: FileSystem, tmp_path: Path) -> None:
    fs.mkdir("/copies")
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
        fs.mkdir(f"/copies/{name}")
        fs.write_file(f"/copies/{name}/file", name.encode())
    (tmp_path / "out").mkdir()
    for command in (
        ["put", str(tmp_path / "one/file"), str(tmp_path / "two/file"), "/copies"],
        ["get", "/copies/one/file", "/copies/two/file", str(tmp_path / "out")],
    ):
        done = threefs.run(*command)
        assert done.exit_code == 2 and "two of the files would both become" in done.stderr
    assert not fs.exists("/copies/file") and not os.listdir(tmp_path / "out")


def test_a_path_with_a_slash_at_its_end_names_a_directory(threefs: CommandLine, fs: FileSystem, tmp_path: Path) -> None:
    """A directory that was not made yet does not become a file, which the next copy into it would replace."""
    fs.mkdir("/slash")
    fs.write_file("/slash/file", b"x")
    (tmp_path / "file").write_text("y")
    for command in (
        ["put", str(tmp_path / "file"), "/slash/new/"],
        ["put", str(tmp_path / "file"), "/slash/file/"],
        ["get", "/slash/file", str(tmp_path / "new") + "/"],
        ["mv", "/slash/file", "/slash/new/"],
        ["ln", "/slash/file", "/slash/new/"],
        ["ln", "-s", "file", "/slash/new/"],
    ):
        assert "is not a directory" in threefs.error(*command), command
    assert threefs.ok("ls", "/slash") == "file\n" and fs.read_file("/slash/file") == b"x"
    assert os.listdir(tmp_path) == ["file"]
    fs.mkdir("/slash/d")
    threefs.ok("mv", "/slash/d/", "/slash/e/")
    threefs.ok("put", "-r", str(tmp_path) + "/", "/slash/tree/")
    threefs.ok("get", "-r", "/slash/tree/", str(tmp_path / "tree") + "/")
    assert (tmp_path / "tree" / "file").read_text() == "y"
