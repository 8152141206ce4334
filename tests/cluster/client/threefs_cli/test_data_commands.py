"""Datasets, by the command line and real services."""

import json
import sys
from pathlib import Path

import pytest
from threefs_client import FileSystem
from threefs_data import Dataset, token_format

from tests.harness.command_line import CommandLine


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "a.txt").write_text("".join(f"line {number}\n" for number in range(300)))
    rows = (json.dumps({"body": f"json {number}"}) for number in range(100))
    (tmp_path / "rows.jsonl").write_text("\n".join(rows))
    return tmp_path


def test_a_corpus_becomes_a_dataset(threefs: CommandLine, fs: FileSystem, corpus: Path) -> None:
    source = str(corpus / "corpus")
    done = threefs.json("data", "prepare", source, "/data-command/a", "--split-size", "1k", "--workers", "2")
    assert (done["documents"], done["samples"], done["reused_splits"]) == (300, 300, 0)
    assert fs.exists("/data-command/a") and not fs.exists("/data-command/a.preparing")
    with Dataset(fs, "/data-command/a") as dataset:
        assert sorted(bytes(sample) for sample in dataset.read(range(300))) == sorted(
            b"line %d" % number for number in range(300)
        )
    assert "is there already" in threefs.error("data", "prepare", source, "/data-command/a")


def test_sequences_of_files_in_the_cluster(threefs: CommandLine, fs: FileSystem, corpus: Path) -> None:
    fs.mkdir("/data-command/raw", parents=True)
    fs.write_file("/data-command/raw/b.jsonl", (corpus / "rows.jsonl").read_bytes())
    said = threefs.ok(
        *("data", "prepare", "threefs:///data-command/raw", "/data-command/b", "--field", "body"),
        *("--sequence-length", "16", "--end-of-document", "256", "--document-starts", "--workers", "1"),
    )
    assert said.startswith("49 samples of 790 tokens from 100 documents in 1 shard")
    assert "the last 6 tokens fill no sequence" in said
    assert token_format.read(fs, "/data-command/b").sample_bytes == 34


def test_an_error_in_the_input_says_how_to_go_on(threefs: CommandLine, fs: FileSystem, corpus: Path) -> None:
    arguments = ("data", "prepare", str(corpus / "rows.jsonl"), "/data-command/c", "--workers", "1")
    result = threefs.run(*arguments)
    assert result.exit_code == 1
    assert "rows.jsonl, line 1 is not an object with the field 'text'" in result.stderr
    assert "start again: what is done stays in /data-command/c.preparing" in result.stderr
    assert fs.exists("/data-command/c.preparing") and not fs.exists("/data-command/c")
    assert threefs.json(*arguments, "--field", "body")["documents"] == 100


def test_wrong_options_are_refused(threefs: CommandLine, corpus: Path) -> None:
    for wrong in (["--tokenizer", "words"], ["--documents", "words"], ["--shard-size", "0"], ["--document-starts"]):
        result = threefs.run("data", "prepare", str(corpus / "rows.jsonl"), "/data-command/d", *wrong)
        assert result.exit_code == 2, result.output


@pytest.mark.parametrize("kind", ["megatron", "mds", "webdataset"])
@pytest.mark.parametrize("where", ["machine", "cluster"])
def test_a_dataset_in_other_formats(
    threefs: CommandLine, fs: FileSystem, corpus: Path, kind: str, where: str, tmp_path: Path
) -> None:
    top = f"/data-command/{kind}-{where}"
    threefs.ok("data", "prepare", str(corpus / "corpus"), f"{top}/a", "--workers", "1")
    there = f"threefs://{top}/there" if where == "cluster" else str(tmp_path / "there")
    assert threefs.ok("data", "export", f"{top}/a", there, "--format", kind, "--shard-size", "2k").startswith("300 ")
    source = f"{there}/tokens" if kind == "megatron" else there
    assert threefs.json("data", "import", source, f"{top}/b", "--format", kind)["samples"] == 300
    with Dataset(fs, f"{top}/a") as first, Dataset(fs, f"{top}/b") as second:
        numbers = range(300)
        assert list(map(bytes, first.read(numbers))) == list(map(bytes, second.read(numbers)))


def test_a_tokenizer_of_the_current_directory(
    threefs: CommandLine, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "of_words.py").write_text("def lengths(text):\n    return [len(word) for word in text.split()]\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    done = threefs.json("data", "prepare", str(corpus / "corpus"), "/words", "--tokenizer", "of_words:lengths")
    assert done["tokens"] > 0
