"""The two kinds of tasks that workers run. Each makes files under temporary names first, so a task that is killed, or
that runs twice, does no harm."""

import json
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from threefs.env.random import RANDOM
from threefs.errors import Corrupt, NotFound, ThreefsError
from threefs_data import format
from threefs_data.filesystem_protocol import FileSystem, TreeFileSystem
from threefs_data.permutation import Permutation
from threefs_data.prepare.documents import Document, DocumentReader
from threefs_data.prepare.process_filesystem import ProcessFileSystem
from threefs_data.prepare.spill import READ_SAMPLES, Spill, SpilledSamples, SpillWriter
from threefs_data.prepare.splits import Split
from threefs_data.prepare.tokenizers import Tokenizer
from threefs_data.shard_writer import ShardWriter
from threefs_data.token_format import TokenFormat

SPILLS, DATASET, ROWS = "spills", "dataset", "rows"
MANIFEST = "manifest.json"

_manifests: dict[str, list[Spill]] = {}


@dataclass(frozen=True, slots=True)
class TokenizeTask:
    """Split -> spill file."""

    directory: str
    key: str
    split: Split
    reader: DocumentReader
    tokenizer: Tokenizer
    token_format: TokenFormat


@dataclass(frozen=True, slots=True)
class ShardTask:
    """A range of places in the final order -> shard of the dataset."""

    directory: str
    number: int
    first: int
    last: int
    seed: int | None  # None: the order of the input
    token_format: TokenFormat


def tokenize(shared: ProcessFileSystem, task: TokenizeTask) -> Spill:
    """Write the spill file of a split. Raises Corrupt, FileTooLarge, which name file and line."""
    fs = shared.fs
    path = f"{task.directory}/{SPILLS}/{task.key}"
    with _appears_whole(fs, path) as temporary, closing(SpillWriter(fs, temporary, task.token_format)) as writer:
        for piece in task.split.pieces:
            with closing(task.reader.read(fs, piece)) as documents:
                for document in documents:
                    writer.add(_ids(fs, task, document))
        writer.finish()
    return Spill(path, writer.documents, writer.tokens)


def _ids(fs: TreeFileSystem, task: TokenizeTask, document: Document) -> NDArray[np.integer]:
    try:
        ids = task.tokenizer.encode(document.data)
    except ThreefsError:
        raise
    except UnicodeDecodeError as error:
        raise Corrupt(f"{task.reader.place(fs, document)} is not UTF-8: {error}") from None
    except Exception as error:  # of a function that we do not know
        raise Corrupt(f"{task.reader.place(fs, document)}: the tokenizer failed: {error!r}") from error
    if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
        raise Corrupt(f"{task.reader.place(fs, document)}: the tokenizer returned no row of whole numbers")
    if ids.size and ids.dtype != np.uint8 and not 0 <= int(ids.min()) <= int(ids.max()) <= task.token_format.max_token:
        raise Corrupt(
            f"{task.reader.place(fs, document)}: tokens from {ids.min()} to {ids.max()} do not fit "
            f"{task.token_format.dtype}; choose a larger type"
        )
    size = (len(ids) + 1) * task.token_format.token_bytes
    if not task.token_format.sequence_length and size > format.MAX_SAMPLE_BYTES:
        raise Corrupt(
            f"{task.reader.place(fs, document)}: {size} bytes of tokens are more than the "
            f"{format.MAX_SAMPLE_BYTES} of a sample; give a sequence length"
        )
    return ids


def write_shard(shared: ProcessFileSystem, task: ShardTask) -> tuple[int, format.Shard]:
    """Write a shard, then its row of the index; the number of the shard, and the row."""
    fs = shared.fs
    samples = SpilledSamples(fs, read_manifest(fs, f"{task.directory}/{MANIFEST}"), task.token_format)
    order = None if task.seed is None else Permutation(len(samples), task.seed, 0)
    path = f"{task.directory}/{DATASET}/{format.shard_name(task.number)}"
    with _appears_whole(fs, path) as temporary, closing(ShardWriter(fs, temporary, task.number)) as writer:
        for first in range(task.first, task.last, READ_SAMPLES):
            places = np.arange(first, min(first + READ_SAMPLES, task.last))
            for sample in samples.read(places if order is None else order(places)):
                writer.add(sample)
        shard = writer.finish()
    write_whole(fs, f"{task.directory}/{ROWS}/{task.number}", json.dumps(asdict(shard)).encode())
    return task.number, shard


def read_rows(fs: FileSystem, directory: str, shards: Sequence[int]) -> dict[int, format.Shard]:
    """The rows of the shards that are finished. A row whose shard is gone, with a dataset that was removed since, does
    not count."""
    names = [f"{directory}/{ROWS}/{number}" for number in shards]
    files = fs.stat_many([f"{directory}/{DATASET}/{format.shard_name(number)}" for number in shards])
    rows = zip(shards, names, fs.stat_many(names), files, strict=True)
    there = [(number, name, row.length) for number, name, row, file in rows if row is not None and file is not None]
    views = fs.read_batch([(name, 0, length) for _, name, length in there]) if there else []
    return {
        number: format.Shard(**_object(bytes(view), name)) for (number, name, _), view in zip(there, views, strict=True)
    }


def write_manifest(fs: FileSystem, path: str, spills: Sequence[Spill]) -> None:
    """Every worker reads where the samples are. It is there whole before it is used."""
    write_whole(fs, path, json.dumps([[spill.path, spill.documents, spill.tokens] for spill in spills]).encode())


def read_manifest(fs: FileSystem, path: str) -> list[Spill]:
    """Kept for the next task of this process: its name says what it contains."""
    if path not in _manifests:
        (found,) = fs.stat_many([path])
        if found is None:
            raise NotFound(f"there is no {path}: another command has removed the work of this one")
        (content,) = fs.read_batch([(path, 0, found.length)])
        _manifests.clear()
        _manifests[path] = [Spill(*row) for row in json.loads(bytes(content))]
    return _manifests[path]


def write_whole(fs: FileSystem, path: str, content: bytes) -> None:
    """It is there whole, or not at all."""
    with _appears_whole(fs, path) as temporary, fs.open(temporary, "wb") as file:
        file.write(content)


@contextmanager
def _appears_whole(fs: FileSystem, path: str) -> Iterator[str]:
    """A temporary name, beside the directory of `path`; it takes that name at the end of the block."""
    directory, _, name = path.rpartition("/")
    temporary = f"{directory.rpartition('/')[0]}/{name}.unfinished-{RANDOM.token(8).hex()}"
    try:
        yield temporary
        fs.rename(temporary, path)
    except BaseException:
        with suppress(OSError):  # the first error is the one to raise; the remains have "unfinished" in their name
            fs.remove(temporary)
        raise


def _object(content: bytes, where: str) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except ValueError:
        raise Corrupt(f"{where} is not what a task wrote; remove it, and start again") from None
    assert isinstance(found, dict), "written by write_shard"
    return found
