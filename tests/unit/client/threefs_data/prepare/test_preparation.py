"""Jobs over local files; `tests/cluster` has jobs on a cluster that are killed."""

import json
import os
import tracemalloc
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threefs_data import Dataset, token_format
from threefs_data.permutation import Permutation
from threefs_data.prepare import DocumentReader, Output, Prepared, prepare
from threefs_data.prepare.preparation import SUFFIX, TOKENIZING

from tests.harness.local_files import LocalFile, LocalFiles
from threefs.errors import AlreadyExists, Corrupt, InvalidArgument

SMALL = Output(seed=3, shard_bytes=700, split_bytes=300)
DOCUMENTS = [b"document %d%s" % (number, b"." * (number % 17)) for number in range(200)]


class Inline(Executor):
    """Runs each task at once, in this thread, until it is to die: as a process that is killed before that task."""

    def __init__(self, tasks: int = 1 << 30) -> None:
        self.tasks = tasks

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        if self.tasks == 0:
            raise KeyboardInterrupt
        self.tasks -= 1
        done: Future[Any] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as error:
            done.set_exception(error)
        return done


@pytest.fixture
def fs(tmp_path: Path) -> LocalFiles:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_bytes(b"\n".join(DOCUMENTS[:120]) + b"\n")
    rows = (json.dumps({"text": document.decode()}) for document in DOCUMENTS[120:])
    (tmp_path / "in" / "b.jsonl").write_text("\n".join(rows))
    return LocalFiles(str(tmp_path))


def content(fs: LocalFiles, path: str) -> dict[str, bytes]:
    return {name: (Path(fs.root) / path.lstrip("/") / name).read_bytes() for name in fs.listing(path)}


def run(fs: LocalFiles, path: str, executor: Executor | None = None, **options: Any) -> Prepared:
    chosen = {"output": SMALL, "executor": executor or Inline(), **options}
    return prepare(fs, ["threefs:///in"], path, **chosen)


def test_every_document_is_a_sample_in_one_permutation_of_all(fs: LocalFiles) -> None:
    done = run(fs, "/ds")
    assert (done.documents, done.samples, done.dropped_tokens) == (200, 200, 0)
    assert done.tokens == sum(map(len, DOCUMENTS)) and done.shards > 3
    order = Permutation(200, 3, 0)(np.arange(200)).tolist()
    with Dataset(fs, "/ds") as dataset:
        assert [dataset[place] for place in range(200)] == [DOCUMENTS[number] for number in order]
    assert token_format.read(fs, "/ds").dtype == "uint8"
    assert fs.listing("/") == ["ds", "in"], "nothing is left beside it"


def test_without_a_shuffle_samples_keep_the_order_of_the_input(fs: LocalFiles) -> None:
    run(fs, "/ds", output=Output(seed=None, shard_bytes=500, split_bytes=100))
    with Dataset(fs, "/ds") as dataset:
        assert [dataset[place] for place in range(200)] == DOCUMENTS


def test_sequences(fs: LocalFiles) -> None:
    done = run(fs, "/ds", sequence_length=64, end_of_document=256, document_starts=True)
    tokens = [token for document in DOCUMENTS for token in [*document, 256]]
    assert (done.tokens, done.samples, done.dropped_tokens) == (len(tokens), len(tokens) // 64, len(tokens) % 64)
    described = token_format.read(fs, "/ds")
    assert described.dtype == "uint16"
    order = Permutation(done.samples, 3, 0)(np.arange(done.samples)).tolist()
    with Dataset(fs, "/ds") as dataset:
        for place, number in enumerate(order):
            sample = dataset[place]
            first = 64 * number
            assert described.tokens(sample).tolist() == tokens[first : first + 64]
            ends = [at for at in range(64) if first + at == 0 or tokens[first + at - 1] == 256]
            assert described.starts(sample).nonzero()[0].tolist() == ends


def test_the_number_of_workers_and_the_splits_do_not_change_the_samples(fs: LocalFiles) -> None:
    run(fs, "/inline")
    with ThreadPoolExecutor(4) as threads:
        run(fs, "/threads", threads)
    assert content(fs, "/inline") == content(fs, "/threads")
    run(fs, "/splits", output=Output(seed=3, shard_bytes=700, split_bytes=1 << 20))
    assert content(fs, "/splits") == content(fs, "/inline")


@pytest.mark.processes
def test_processes(fs: LocalFiles) -> None:
    run(fs, "/inline")
    prepare(fs, ["threefs:///in"], "/processes", output=SMALL, workers=2)
    assert content(fs, "/processes") == content(fs, "/inline")


@pytest.mark.slow
@settings(max_examples=15)
@given(st.lists(st.integers(0, 15), max_size=6), st.sampled_from([0, 50]))
def test_stopped_anywhere_and_started_again_it_makes_the_same(stops: list[int], length: int) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        fs = LocalFiles(directory)
        os.mkdir(f"{directory}/in")
        (Path(directory) / "in" / "a.txt").write_bytes(b"\n".join(DOCUMENTS))
        run(fs, "/whole", sequence_length=length)
        for stop in stops:
            if "ds" in fs.listing("/"):
                break
            try:
                run(fs, "/ds", Inline(stop), sequence_length=length)
            except KeyboardInterrupt:
                assert f"ds{SUFFIX}" in fs.listing("/") and "ds" not in fs.listing("/")
        if "ds" not in fs.listing("/"):
            run(fs, "/ds", sequence_length=length)
        assert content(fs, "/ds") == content(fs, "/whole")
        assert fs.listing("/") == ["ds", "in", "whole"]


def test_what_is_done_is_not_done_again(fs: LocalFiles) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(fs, "/ds", Inline(5))
    seen: list[tuple[str, int, int]] = []
    done = run(fs, "/ds", progress=lambda *now: seen.append(now))
    assert done.reused_splits == 5 and done.reused_shards == 0
    assert seen[0][0] == TOKENIZING and 0 < seen[0][1] < seen[0][2]
    assert all(now[1] <= now[2] for now in seen) and seen[-1][1] == seen[-1][2] == 200


def test_a_job_that_was_killed_between_its_last_steps_ends_well(fs: LocalFiles) -> None:
    class Stopping(LocalFiles):
        def remove(self, path: str, *, recursive: bool = False) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(Stopping(fs.root), "/ds")
    done = run(fs, "/ds")
    assert done.samples == 200 and done.shards == done.reused_shards > 3
    assert fs.listing("/") == ["ds", "in"]
    with pytest.raises(AlreadyExists, match="/ds is there already"):
        run(fs, "/ds")


def test_a_dataset_that_was_removed_since_is_made_anew(fs: LocalFiles) -> None:
    """The command was killed when its dataset had the name, and somebody has removed the dataset, not the work."""

    class Stopping(LocalFiles):
        def remove(self, path: str, *, recursive: bool = False) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(Stopping(fs.root), "/ds")
    before = content(fs, "/ds")
    fs.remove("/ds", recursive=True)
    assert run(fs, "/ds").reused_shards == 0
    assert content(fs, "/ds") == before


def test_another_command_that_ends_first_leaves_a_whole_dataset(fs: LocalFiles) -> None:
    """Two commands with the same arguments: the second one comes to its end while the first one has written its last
    file, before it gives the dataset its name. What it then has is its own work, or an error."""

    class Overtaken(LocalFiles):
        def rename(self, source: str, destination: str, *, replace: bool = True) -> None:
            if destination == "/ds":
                run(fs, "/ds")
                whole.update(content(fs, "/ds"))
            super().rename(source, destination, replace=replace)

    whole: dict[str, bytes] = {}
    with pytest.raises(AlreadyExists, match=r"^/ds: another command has made the dataset meanwhile"):
        run(Overtaken(fs.root), "/ds")
    assert content(fs, "/ds") == whole and "dataset.index" in whole


def test_the_index_of_a_dataset_is_never_there_in_part(fs: LocalFiles) -> None:
    """Another command with the same arguments may give the dataset its name at any time."""

    class Looking(LocalFiles):
        def open(self, path: str, mode: str = "rb", *, chunk_bytes: int = 0) -> LocalFile:
            assert "w" not in mode or not path.endswith("/dataset/dataset.index")
            return super().open(path, mode, chunk_bytes=chunk_bytes)

    assert run(Looking(fs.root), "/ds").samples == 200


class Offset:
    """Its method is one of several tokenizers of one name."""

    def __init__(self, first: int) -> None:
        self.first = first

    def encode(self, text: str) -> list[int]:
        return [self.first + ord(letter) for letter in text]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Offset(1).encode, Offset(2).encode),
        (partial(Offset.encode, Offset(1)), partial(Offset.encode, Offset(2))),
        (lambda text: [1] * len(text), lambda text: [2] * len(text)),
    ],
    ids=["method", "partial", "lambda"],
)
def test_a_tokenizer_of_the_same_name_uses_nothing_of_another_one(fs: LocalFiles, first: Any, second: Any) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(fs, "/ds", Inline(5), tokenizer=first)
    assert run(fs, "/ds", tokenizer=second).reused_splits == 0
    run(fs, "/whole", tokenizer=second)
    assert content(fs, "/ds") == content(fs, "/whole")


def test_the_same_tokenizer_goes_on(fs: LocalFiles) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(fs, "/ds", Inline(5), tokenizer=Offset(1).encode)
    assert run(fs, "/ds", tokenizer=Offset(1).encode).reused_splits == 5


def test_bad_input_is_mended_and_the_rest_is_not_done_again(fs: LocalFiles) -> None:
    path = Path(fs.root) / "in" / "b.jsonl"
    good = path.read_bytes()
    path.write_bytes(good + b'\n{"text": 5}\n')
    with pytest.raises(Corrupt, match=r"b\.jsonl, line 81: the field 'text' is not a text"):
        run(fs, "/ds")
    assert fs.listing("/") == [f"ds{SUFFIX}", "in"]
    path.write_bytes(good)
    assert run(fs, "/ds").reused_splits > 3
    run(fs, "/whole")
    assert content(fs, "/ds") == content(fs, "/whole")


def test_other_settings_use_nothing_of_an_earlier_job(fs: LocalFiles) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(fs, "/ds", Inline(5))
    done = run(fs, "/ds", reader=DocumentReader(max_bytes=1000), sequence_length=10)
    assert done.reused_splits == 0
    run(fs, "/whole", sequence_length=10)
    assert content(fs, "/ds") == content(fs, "/whole")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sequence_length": 10_000}, "not enough for one sample of --sequence-length 10000"),
        ({"output": Output(shard_bytes=0)}, "shards of 0 bytes"),
        ({"output": Output(split_bytes=0)}, "splits of 0 bytes"),
        ({"end_of_document": 5000, "dtype": "uint8"}, "end-of-document token 5000"),
        ({"dtype": "float32"}, "float32"),
    ],
)
def test_impossible_options_are_refused(fs: LocalFiles, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        run(fs, "/ds", **options)


def test_empty_files_are_refused(fs: LocalFiles) -> None:
    for name in ("a.txt", "b.jsonl"):
        (Path(fs.root) / "in" / name).write_bytes(b"")
    with pytest.raises(InvalidArgument, match="the input files are empty"):
        run(fs, "/ds")
    (Path(fs.root) / "in" / "a.txt").write_bytes(b"\n\n")
    with pytest.raises(InvalidArgument, match="not enough for one sample"):
        run(fs, "/ds")


def test_the_same_file_twice_is_read_twice(fs: LocalFiles) -> None:
    done = prepare(fs, ["threefs:///in/a.txt"] * 2, "/ds", executor=Inline(), output=Output(split_bytes=1 << 20))
    assert done.documents == 240


@pytest.mark.slow
@pytest.mark.parametrize("length", [0, 4096])
def test_memory_does_not_grow_with_the_input(tmp_path: Path, length: int) -> None:
    fs = LocalFiles(str(tmp_path))
    (tmp_path / "in").mkdir()
    peaks = []
    for megabytes in (64, 192):
        line = os.urandom(32 << 10).hex().encode() + b"\n"
        (tmp_path / "in" / "a.txt").write_bytes(line * (megabytes * 16))
        chosen = Output(shard_bytes=32 << 20, split_bytes=16 << 20)
        tracemalloc.start()
        done = run(fs, f"/ds-{megabytes}", output=chosen, sequence_length=length)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert done.tokens == megabytes << 20
    assert peaks[1] < peaks[0] + (8 << 20) and peaks[1] < 100 << 20, peaks
