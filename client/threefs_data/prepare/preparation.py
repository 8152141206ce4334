"""Prepares a dataset: text becomes tokens, and the samples come into one random order.

There are two rounds of tasks, for any number of workers. In the first, each split of the input becomes a spill file of
tokens. Then all samples have numbers, and a permutation of the numbers says which shard has which. In the second, each
shard is written from the spill files, by batches of random reads. The name of each file that a task makes depends on
everything that the task makes it from. So a job that was killed does what is missing when it is started again, and its
result is the same byte for byte.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import TypeVar

from threefs.env.executor import Executor, process_pool, results
from threefs.errors import AlreadyExists, InvalidArgument, NotFound
from threefs_data import format, token_format
from threefs_data.filesystem_protocol import TreeFileSystem
from threefs_data.prepare import sources, splits, tasks
from threefs_data.prepare.documents import DocumentReader
from threefs_data.prepare.process_filesystem import ProcessFileSystem
from threefs_data.prepare.spill import Spill, read_counts
from threefs_data.prepare.splits import Split
from threefs_data.prepare.tasks import ShardTask, TokenizeTask
from threefs_data.prepare.tokenizers import ByteTokenizer, Tokenizer
from threefs_data.prepare.tokenizers import of as tokenizer_of
from threefs_data.token_format import TokenFormat, smallest_dtype

#: It changes with what a task makes of equal input.
VERSION = 1
SUFFIX = ".preparing"
#: The table of a shard is in memory while it is written.
MAX_SHARD_SAMPLES = 1 << 20
#: Tasks that an executor has at a time: enough for hundreds of workers.
TASKS_AT_ONCE = 1024
_FILES_AT_ONCE = 1024

T = TypeVar("T")

TOKENIZING, SHUFFLING = "tokenizing", "shuffling"
#: Called with the phase, what is done, and what is to be done: bytes of input, then samples.
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Prepared:
    """The counts of a preparation that has ended."""

    path: str
    documents: int
    tokens: int
    samples: int
    shards: int
    dropped_tokens: int  # the last ones, which fill no sequence
    reused_splits: int  # of an earlier run that did not come to its end
    reused_shards: int


@dataclass(frozen=True, slots=True)
class Output:
    """How the samples become files."""

    seed: int | None = 0  # of the order; None: that of the input
    shard_bytes: int = 256 << 20
    split_bytes: int = 64 << 20


def prepare(
    fs: TreeFileSystem,
    inputs: Sequence[str],
    path: str,
    *,
    tokenizer: Tokenizer | Callable[[str], Sequence[int]] | None = None,
    input_format: str | None = None,
    reader: DocumentReader | None = None,
    dtype: str | None = None,
    sequence_length: int = 0,
    end_of_document: int | None = None,
    document_starts: bool = False,
    output: Output | None = None,
    workers: int | None = None,
    executor: Executor | None = None,
    progress: Progress = lambda phase, done, total: None,
) -> Prepared:
    """Make a dataset of tokens at `path`, which appears whole.

    `inputs` are files and directories of this machine, or of the cluster (`threefs:///path`). `executor` runs the
    tasks; without one there are `workers` processes (one for each core). A job that did not come to its end goes on
    where it was when it is called again with the same arguments. Raises Corrupt and FileTooLarge for a document that
    cannot be used, with file and line; AlreadyExists, NotFound, InvalidArgument, NotSupported, Unavailable.
    """
    chosen = ByteTokenizer() if tokenizer is None else tokenizer_of(tokenizer)
    described = TokenFormat(
        dtype or _dtype(chosen, end_of_document), sequence_length, document_starts, end_of_document, chosen.name
    )
    found = sources.find(fs, inputs, input_format)
    job = Job(fs, path, found, chosen, reader or DocumentReader(), described, output or Output())
    pool = process_pool(workers or os.cpu_count() or 1) if executor is None else nullcontext(executor)
    with pool as running:
        return job.run(running, progress)


def _dtype(tokenizer: Tokenizer, end_of_document: int | None) -> str:
    if not tokenizer.vocabulary:
        return token_format.DTYPES[-1]
    return smallest_dtype(max(tokenizer.vocabulary, (end_of_document or 0) + 1))


class Job:
    """One dataset in the making."""

    def __init__(
        self,
        fs: TreeFileSystem,
        path: str,
        found: Sequence[sources.Source],
        tokenizer: Tokenizer,
        reader: DocumentReader,
        described: TokenFormat,
        output: Output,
    ) -> None:
        self._fs = fs
        self._shared = ProcessFileSystem(fs)
        self._path = path.rstrip("/")
        self._tokenizer = tokenizer
        self._reader = reader
        self._format = described
        self._output = output
        settings = json.dumps([VERSION, asdict(reader), asdict(described), getattr(tokenizer, "state", "")])
        cut = [(split.key(settings), split) for split in splits.cut(found, output.split_bytes, reader.is_whole)]
        self._splits = dict(cut)
        self._order = [key for key, _ in cut]
        name = hashlib.sha256(json.dumps([settings, self._order, asdict(output)]).encode()).hexdigest()[:32]
        self._temporary = f"{self._path}{SUFFIX}"
        self._directory = f"{self._temporary}/{name}"
        if not self._order:
            raise InvalidArgument("the input files are empty")
        if not 1 <= output.shard_bytes <= format.MAX_SHARD_BYTES - format.MAX_SAMPLE_BYTES:
            raise InvalidArgument(f"shards of {output.shard_bytes} bytes are not possible; 256M is usual")

    def run(self, executor: Executor, progress: Progress) -> Prepared:
        """Do what is missing."""
        if self._exists(self._path):
            return self._finished_before()
        try:
            return self._do(executor, progress)
        except (AlreadyExists, NotFound) as error:
            if self._exists(self._directory):
                raise
            made = "made the dataset" if self._exists(self._path) else "removed the work of this one"
            raise AlreadyExists(f"{self._path}: another command has {made} meanwhile ({error.message})") from None

    def _do(self, executor: Executor, progress: Progress) -> Prepared:
        fs = self._fs
        for directory in (f"{self._temporary}/{tasks.SPILLS}", *map(self._inside, (tasks.DATASET, tasks.ROWS))):
            fs.mkdir(directory, parents=True)
        spills, reused_splits = self._tokenize(executor, progress)
        tasks.write_manifest(fs, self._inside(tasks.MANIFEST), spills)
        shards, reused_shards = self._shuffle(executor, progress, spills)
        dataset = self._inside(tasks.DATASET)
        tasks.write_whole(fs, f"{dataset}/{token_format.NAME}", self._format.encode())
        tasks.write_whole(fs, f"{dataset}/{format.INDEX_NAME}", format.encode_index(shards))
        fs.rename(dataset, self._path, replace=False)
        fs.remove(self._temporary, recursive=True)
        return self._prepared(spills, len(shards), reused_splits, reused_shards)

    def _exists(self, path: str) -> bool:
        (found,) = self._fs.stat_many([path])
        return found is not None

    def _inside(self, name: str) -> str:
        return f"{self._directory}/{name}"

    def _finished_before(self) -> Prepared:
        """The end of a job that was killed after its dataset had its name. Raises AlreadyExists for another one."""
        manifest = self._inside(tasks.MANIFEST)
        if not self._exists(manifest) or self._exists(self._inside(tasks.DATASET)):
            raise AlreadyExists(f"{self._path} is there already; remove it, or choose another name")
        spills = tasks.read_manifest(self._fs, manifest)
        shards = len(self._shard_tasks(spills))
        self._fs.remove(self._temporary, recursive=True)
        return self._prepared(spills, shards, len(spills), shards)

    def _tokenize(self, executor: Executor, progress: Progress) -> tuple[list[Spill], int]:
        """The spill files in the order of the input; how many of them were there already."""
        names = {f"{self._temporary}/{tasks.SPILLS}/{key}": key for key in self._splits}
        spills: dict[str, Spill] = {}
        for part in _parts(list(names)):
            spills |= {spill.path: spill for spill in read_counts(self._fs, part) if spill is not None}
        reused = len(spills)
        total = sum(split.length for split in self._splits.values())
        done = sum(self._splits[names[path]].length for path in spills)
        progress(TOKENIZING, done, total)
        calls = [(self._shared, self._task(key)) for path, key in names.items() if path not in spills]
        for spill in results(executor, tasks.tokenize, calls, at_once=TASKS_AT_ONCE):
            spills[spill.path] = spill
            done += self._splits[names[spill.path]].length
            progress(TOKENIZING, done, total)
        return [spills[f"{self._temporary}/{tasks.SPILLS}/{key}"] for key in self._order], reused

    def _task(self, key: str) -> TokenizeTask:
        split: Split = self._splits[key]
        return TokenizeTask(self._temporary, key, split, self._reader, self._tokenizer, self._format)

    def _shuffle(
        self, executor: Executor, progress: Progress, spills: Sequence[Spill]
    ) -> tuple[list[format.Shard], int]:
        """The rows of all shards; how many of the shards were there already."""
        planned = self._shard_tasks(spills)
        rows: dict[int, format.Shard] = {}
        for part in _parts(range(len(planned))):
            rows |= tasks.read_rows(self._fs, self._directory, part)
        reused = len(rows)
        total = planned[-1].last
        done = sum(planned[number].last - planned[number].first for number in rows)
        progress(SHUFFLING, done, total)
        calls = [(self._shared, task) for task in planned if task.number not in rows]
        for number, shard in results(executor, tasks.write_shard, calls, at_once=TASKS_AT_ONCE):
            rows[number] = shard
            done += planned[number].last - planned[number].first
            progress(SHUFFLING, done, total)
        return [rows[number] for number in range(len(planned))], reused

    def _shard_tasks(self, spills: Sequence[Spill]) -> list[ShardTask]:
        tokens, samples = self._count(spills)
        if not samples:
            needed = f" of --sequence-length {self._format.sequence_length}" if self._format.sequence_length else ""
            raise InvalidArgument(f"the input has {tokens} tokens, not enough for one sample{needed}")
        size = self._format.sample_bytes or max(1, tokens * self._format.token_bytes // samples)
        per_shard = min(MAX_SHARD_SAMPLES, max(1, self._output.shard_bytes // size))
        shards = -(-samples // per_shard)
        if shards > format.MAX_SHARDS:
            raise InvalidArgument(f"{shards} shards are more than {format.MAX_SHARDS}; make the shards larger")
        return [
            ShardTask(
                self._directory,
                number,
                number * per_shard,
                min(samples, (number + 1) * per_shard),
                self._output.seed,
                self._format,
            )
            for number in range(shards)
        ]

    def _count(self, spills: Sequence[Spill]) -> tuple[int, int]:
        """Tokens, and samples."""
        tokens = sum(spill.tokens for spill in spills)
        documents = sum(spill.documents for spill in spills)
        return tokens, tokens // self._format.sequence_length if self._format.sequence_length else documents

    def _prepared(self, spills: Sequence[Spill], shards: int, reused_splits: int, reused_shards: int) -> Prepared:
        tokens, samples = self._count(spills)
        dropped = tokens % self._format.sequence_length if self._format.sequence_length else 0
        documents = sum(spill.documents for spill in spills)
        return Prepared(self._path, documents, tokens, samples, shards, dropped, reused_splits, reused_shards)


def _parts(names: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(names), _FILES_AT_ONCE):
        yield names[start : start + _FILES_AT_ONCE]
