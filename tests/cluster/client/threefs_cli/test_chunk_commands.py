"""Where the bytes of a file are, on the shared cluster."""

import pytest
from threefs_client import FileSystem

from tests.harness.command_line import CommandLine
from threefs.checksums import crc32c

CHUNK = 64 << 10


@pytest.fixture(scope="module", autouse=True)
def file(fs: FileSystem) -> None:
    fs.mkdir("/where", parents=True)
    fs.set_layout("/where", chunk_bytes=CHUNK)
    fs.write_file("/where/a", b"a" * CHUNK + b"bc")


def test_every_member_holds_the_same_bytes(threefs: CommandLine) -> None:
    found = threefs.json("chunk", "where", "/where/a:65537")
    assert (found["chunk"], found["chunk_bytes"], found["agree"]) == (1, CHUNK, True)
    assert len(found["members"]) == 3 and len({member["node_id"] for member in found["members"]}) == 3
    for member in found["members"]:
        assert (member["state"], member["error"], member["pending"], member["damaged"]) == (
            "serving",
            None,
            None,
            False,
        )
        held = member["committed"]
        assert (held["length_bytes"], held["checksum"]) == (2, f"{crc32c(b'bc'):08x}")
    chains = {chain["chain_id"]: chain for chain in threefs.json("chain", "ls")["chains"]}
    listed = chains[found["chain"]["chain_id"]]
    assert [m["target_id"] for m in listed["members"]] == [m["target_id"] for m in found["members"]]
    text = threefs.ok("chunk", "where", "/where/a:64k")
    assert "is in chunk 1 of inode" in text and f"2 bytes, CRC32C {crc32c(b'bc'):08x}" in text


def test_what_is_not_there_is_said(threefs: CommandLine) -> None:
    beyond = threefs.ok("chunk", "where", "/where/a:1M")
    assert "the file ends before it: it has 65538 bytes" in beyond and "nothing" in beyond
    assert "only files have chunks" in threefs.run("chunk", "where", "/where:0").output
    assert "is not FILE:OFFSET" in threefs.run("chunk", "where", "/where/a").output
    assert "no file has a byte" in threefs.run("chunk", "where", "/where/a:9999T").output
    assert threefs.error("chunk", "where", "/where/none:0").startswith("Error: ")


def test_what_has_happened_to_a_chunk_is_told(threefs: CommandLine, fs: FileSystem) -> None:
    fs.write_file("/where/told", b"once")
    found = threefs.json("chunk", "story", "/where/told:0")
    targets = {member["target_id"] for member in found["members"]}
    assert {event["target_id"] for event in found["events"] if event["what"] == "committed"} == targets
    ages = [event["ago_ms"] for event in found["events"]]
    assert ages == sorted(ages, reverse=True)
    assert "has committed version" in threefs.ok("chunk", "story", "/where/told:0")
