import json

from threefs_client import FileSystem

from tests.harness.command_line import CommandLine


def test_mkdir(threefs: CommandLine, fs: FileSystem) -> None:
    threefs.ok("mkdir", "/made")
    assert "exists" in threefs.error("mkdir", "/made")
    refused = threefs.error("mkdir", "/none/below")
    assert "/none" in refused and "mkdir -p" in refused
    assert threefs.json("mkdir", "-p", "/made", "/made/a/b") == {"made": ["/made", "/made/a/b"]}
    assert fs.stat("/made/a/b").is_directory


def test_mkdir_goes_on_after_what_cannot_be_made(threefs: CommandLine, fs: FileSystem) -> None:
    result = threefs.run("mkdir", "--json", "/made-all", "/made-all", "/made-all/none/a", "/made-all/b")
    assert result.exit_code == 1 and json.loads(result.stdout) == {"made": ["/made-all", "/made-all/b"]}
    first, second = result.stderr.splitlines()
    assert "/made-all exists" in first and "/made-all/none" in second
    assert [entry.name for entry in fs.list("/made-all")] == ["b"]


def test_a_directory_of_files_with_other_chunks(threefs: CommandLine, fs: FileSystem) -> None:
    threefs.ok("mkdir", "--chunk", "64K", "--stripe", "2", "/small")
    fs.write_file("/small/file", b"x")
    layout = fs.stat("/small/file").layout
    assert layout is not None and (layout.chunk_bytes, layout.stripe) == (64 << 10, 2)
    refused = threefs.run("mkdir", "--chunk", "100K", "/odd")
    assert refused.exit_code == 2 and "power of two" in refused.output and not fs.exists("/odd")
    refused = threefs.run("mkdir", "--table", "99", "/odd")
    assert refused.exit_code == 2 and "table 99 does not exist" in refused.output and not fs.exists("/odd")


def test_rm(threefs: CommandLine, fs: FileSystem) -> None:
    fs.mkdir("/rm/full", parents=True)
    for path in ("/rm/a", "/rm/b", "/rm/full/c"):
        fs.write_file(path, b"x")
    assert threefs.json("rm", "/rm/a") == {"removed": ["/rm/a"]}
    threefs.error("rm", "/rm/a")
    assert threefs.json("rm", "-f", "/rm/a", "/rm/b") == {"removed": ["/rm/b"]}
    assert "/rm/full is a directory; rm -r removes it with its content" in threefs.error("rm", "/rm/full")
    threefs.ok("rm", "-r", "/rm/full")
    assert [entry.name for entry in fs.list("/rm")] == []


def test_rm_goes_on_after_what_cannot_be_removed(threefs: CommandLine, fs: FileSystem) -> None:
    fs.mkdir("/rm-all/full", parents=True)
    for path in ("/rm-all/a", "/rm-all/b", "/rm-all/full/c"):
        fs.write_file(path, b"x")
    result = threefs.run("rm", "--json", "/rm-all/a", "/rm-all/none", "/rm-all/full", "/rm-all/b")
    assert result.exit_code == 1 and json.loads(result.stdout) == {"removed": ["/rm-all/a", "/rm-all/b"]}
    first, second = result.stderr.splitlines()
    assert first.startswith("Error: /rm-all/none: ") and second.startswith("Error: ") and "/rm-all/full" in second
    assert [entry.name for entry in fs.list("/rm-all")] == ["full"]


def test_rm_force_ignores_only_what_does_not_exist(threefs: CommandLine, fs: FileSystem) -> None:
    fs.mkdir("/rm-force")
    fs.trash.set("/rm-force", 3600)
    fs.write_file("/rm-force/a", b"x")
    fs.remove("/.trash", recursive=True)
    fs.write_file("/.trash", b"in the place of the trash")
    try:
        assert "move it away" in threefs.error("rm", "-f", "/rm-force/a")
        assert threefs.json("rm", "-f", "/rm-force/none", "/rm-force/a/none") == {"removed": []}
        assert fs.read_file("/rm-force/a") == b"x"
    finally:
        fs.remove("/.trash")


def test_mv(threefs: CommandLine, fs: FileSystem) -> None:
    fs.mkdir("/mv/into", parents=True)
    fs.write_file("/mv/a", b"a")
    fs.write_file("/mv/b", b"b")
    assert threefs.json("mv", "/mv/a", "/mv/into")["destination"] == "/mv/into/a"
    assert "exists" in threefs.error("mv", "-n", "/mv/b", "/mv/into/a")
    threefs.ok("mv", "/mv/b", "/mv/into/a")
    assert fs.read_file("/mv/into/a") == b"b"
    threefs.ok("ln", "/mv/into/a", "/mv/same")
    threefs.ok("mv", "/mv/same", "/mv/into/a")
    assert not fs.exists("/mv/same") and fs.stat("/mv/into/a").nlink == 1


def test_ln(threefs: CommandLine, fs: FileSystem) -> None:
    fs.mkdir("/ln")
    fs.write_file("/ln/a", b"a")
    threefs.ok("ln", "/ln/a", "/ln/same")
    threefs.ok("ln", "-s", "nowhere", "/ln/link")
    assert fs.stat("/ln/a").nlink == 2
    assert fs.readlink("/ln/link") == "nowhere"
    fs.mkdir("/ln/into")
    assert threefs.json("ln", "-s", "/ln/a", "/ln/into")["destination"] == "/ln/into/a"
    assert fs.readlink("/ln/into/a") == "/ln/a"
