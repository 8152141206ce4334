from pathlib import Path

import numpy as np
import pytest
from threefs_data import format
from threefs_data.prepare import sources, tasks
from threefs_data.prepare.documents import DocumentReader
from threefs_data.prepare.process_filesystem import ProcessFileSystem
from threefs_data.prepare.spill import Spill
from threefs_data.prepare.splits import cut
from threefs_data.prepare.tasks import ShardTask, TokenizeTask
from threefs_data.prepare.tokenizers import CallableTokenizer
from threefs_data.token_format import TokenFormat

from tests.harness.local_files import LocalFiles
from threefs.errors import Corrupt

TOKENS = TokenFormat("uint8")


@pytest.fixture
def fs(tmp_path: Path) -> LocalFiles:
    files = LocalFiles(str(tmp_path))
    for directory in (tasks.SPILLS, tasks.DATASET, tasks.ROWS):
        files.mkdir(f"/job/{directory}", parents=True)
    (tmp_path / "a.txt").write_bytes(b"one\ntwo\nthree\n")
    return files


def task_of(fs: LocalFiles, tokenizer: object) -> TokenizeTask:
    (split,) = cut(sources.find(fs, ["threefs:///a.txt"]), 1000, lambda _: False)
    made = CallableTokenizer(tokenizer, "test")  # type: ignore[arg-type]
    return TokenizeTask("/job", "key", split, DocumentReader(), made, TOKENS)


def test_a_task_that_runs_twice_makes_the_same_files(fs: LocalFiles, tmp_path: Path) -> None:
    task = task_of(fs, lambda text: [len(text)])
    spill = tasks.tokenize(ProcessFileSystem(fs), task)
    first = (tmp_path / "job" / tasks.SPILLS / "key").read_bytes()
    assert spill == Spill("/job/spills/key", 3, 3) == tasks.tokenize(ProcessFileSystem(fs), task)
    assert (tmp_path / "job" / tasks.SPILLS / "key").read_bytes() == first
    tasks.write_manifest(fs, "/job/manifest.json", [spill])
    assert tasks.read_manifest(fs, "/job/manifest.json") == [spill]
    shards = [tasks.write_shard(ProcessFileSystem(fs), ShardTask("/job", 0, 0, 3, 1, TOKENS)) for _ in range(2)]
    assert shards[0] == shards[1] and shards[0][1].samples == 3
    assert tasks.read_rows(fs, "/job", [0, 1]) == dict(shards)
    assert fs.listing("/job") == [tasks.DATASET, "manifest.json", tasks.ROWS, tasks.SPILLS]
    assert fs.listing(f"/job/{tasks.DATASET}") == [format.shard_name(0)]


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ([256], "tokens from 256 to 256 do not fit uint8"),
        ([-1, 5], "tokens from -1 to 5 do not fit uint8"),
        ([1.5], "no row of whole numbers"),
        (["a"], "no row of whole numbers"),
        ([[1]], "no row of whole numbers"),
        (7, "no row of whole numbers"),
        (np.array([-1], np.int8), "tokens from -1"),
    ],
)
def test_tokens_that_do_not_fit_are_refused_with_file_and_line(fs: LocalFiles, result: object, message: str) -> None:
    answers = {"one": [1], "two": result, "three": []}
    with pytest.raises(Corrupt, match=f"a.txt, line 2.*{message}"):
        tasks.tokenize(ProcessFileSystem(fs), task_of(fs, answers.__getitem__))
    assert fs.listing("/job") == [tasks.DATASET, tasks.ROWS, tasks.SPILLS] and not fs.listing("/job/spills")


def test_errors_of_a_tokenizer_name_file_and_line(fs: LocalFiles, tmp_path: Path) -> None:
    with pytest.raises(Corrupt, match=r"a\.txt, line 3: the tokenizer failed: KeyError\('three'\)"):
        tasks.tokenize(ProcessFileSystem(fs), task_of(fs, {"one": [], "two": []}.__getitem__))
    (tmp_path / "a.txt").write_bytes(b"one\n\xff\n")
    with pytest.raises(Corrupt, match=r"a\.txt, line 2 is not UTF-8"):
        tasks.tokenize(ProcessFileSystem(fs), task_of(fs, lambda text: []))


def test_no_sample_is_larger_than_the_format_takes(fs: LocalFiles) -> None:
    large = np.broadcast_to(np.uint8(1), (format.MAX_SAMPLE_BYTES,))
    task = task_of(fs, lambda text: large)
    with pytest.raises(Corrupt, match="give a sequence length"):
        tasks.tokenize(ProcessFileSystem(fs), task)


def test_a_row_that_no_task_wrote_is_refused(fs: LocalFiles) -> None:
    tasks.write_whole(fs, f"/job/{tasks.DATASET}/{format.shard_name(0)}", b"")
    tasks.write_whole(fs, f"/job/{tasks.ROWS}/0", b"{")
    with pytest.raises(Corrupt, match="/job/rows/0 is not what a task wrote"):
        tasks.read_rows(fs, "/job", [0])
