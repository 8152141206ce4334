"""`threefs data`: datasets for training."""

import dataclasses
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click
from threefs_client import FileSystem, connect
from threefs_data import interchange
from threefs_data import prepare as preparing
from threefs_data.prepare import documents, preparation, sources, tokenizers
from threefs_data.token_format import DTYPES

from threefs.env.clock import CLOCK
from threefs.errors import Corrupt, FileTooLarge, ThreefsError
from threefs_cli import output
from threefs_cli.cluster_selector import CONNECT_S, ClusterSelector, cluster_options
from threefs_cli.option_types import Size


@click.group()
def data() -> None:
    """Make datasets for training, and copy them into other formats and back."""


@data.command(
    epilog="""
\b
Examples:
  threefs data prepare corpus/ /datasets/corpus
      files of this machine; a token is a byte, a sample is a document
  threefs data prepare threefs:///raw/web.jsonl /datasets/web --tokenizer tokenizer.json \\
      --sequence-length 2048 --end-of-document 0
      a file of the cluster; sequences of 2048 tokens, token 0 behind each document
  threefs data prepare books/ /datasets/books --documents files --tokenizer mymodule:encode
      each text file is a document; encode(text) returns a list of numbers
"""
)
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@click.argument("path")
@click.option(
    "--tokenizer",
    default=tokenizers.BYTES,
    show_default=True,
    metavar="NAME",
    help=("bytes, a file tokenizer.json of Hugging Face's tokenizers, or a function of Python as MODULE:FUNCTION."),
)
@click.option("--input-format", type=click.Choice(sources.KINDS), help="Of all inputs; else the file names say it.")
@click.option("--field", default="text", show_default=True, help="Field of JSON lines, or column of Parquet.")
@click.option(
    "--documents",
    "document_kind",
    type=click.Choice([documents.LINES, documents.FILES]),
    default=documents.LINES,
    show_default=True,
    help="What a document is in text files.",
)
@click.option(
    "--sequence-length",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help=("Samples are N tokens of all documents in a row, instead of one document each."),
)
@click.option("--end-of-document", type=click.IntRange(0), metavar="ID", help="Put this token behind each document.")
@click.option("--document-starts", is_flag=True, help="Keep in each sequence a bit for each token: a document begins.")
@click.option("--dtype", type=click.Choice(DTYPES), help="Of tokens; else the smallest one that the tokenizer needs.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the random order.")
@click.option("--no-shuffle", is_flag=True, help="Keep the order of the input.")
@click.option("--shard-size", type=Size(), default="256M", show_default=True, help="Of the files of the dataset.")
@click.option("--split-size", type=Size(), default="64M", show_default=True, help="Input that one task reads.")
@click.option("--max-document-size", type=Size(), default="64M", show_default=True, help="A larger one is an error.")
@click.option("--workers", type=click.IntRange(1), help="Processes; one for each core if not given.")
@cluster_options
def prepare(
    selector: ClusterSelector,
    inputs: tuple[str, ...],
    path: str,
    tokenizer: str,
    input_format: str | None,
    field: str,
    document_kind: str,
    seed: int,
    no_shuffle: bool,
    shard_size: int,
    split_size: int,
    max_document_size: int,
    **chosen: Any,
) -> None:
    """Make a dataset of tokens at PATH from text, in one random order of all samples.

    An INPUT is a file or a directory of this machine, or of the cluster: threefs:///PATH. Text (a document per line),
    JSON lines and Parquet are read. Equal input gives equal bytes, for any number of workers.

    The dataset appears when it is whole. A command that was killed, or that found an error in the input, goes on where
    it was when it is started again. Until then its files are in PATH.preparing.
    """
    start = CLOCK.monotonic()
    reader = preparing.DocumentReader(document_kind, field, max_document_size)
    made = preparing.Output(None if no_shuffle else seed, shard_size, split_size)
    with _connected(selector) as fs, _progress(quiet=selector.as_json) as progress, _resumable(path):
        done = preparing.prepare(
            fs,
            inputs,
            path,
            tokenizer=_tokenizer(tokenizer),
            input_format=input_format,
            reader=reader,
            output=made,
            progress=progress,
            **chosen,
        )
    _report(selector, done, CLOCK.monotonic() - start)


def _tokenizer(name: str) -> tokenizers.Tokenizer:
    """A module may lie where the command is called: an installed program does not look there by itself."""
    if (here := os.getcwd()) not in sys.path:
        sys.path.append(here)
    return tokenizers.named(name)


@data.command(
    name="export",
    epilog="""
\b
Examples:
  threefs data export /datasets/web out/ --format megatron       out/tokens.bin and out/tokens.idx
  threefs data export /datasets/web threefs:///mds/web --format mds
  threefs data export /datasets/images out/ --format webdataset --field jpg
""",
)
@click.argument("path")
@click.argument("destination")
@click.option("--format", "kind", type=click.Choice(interchange.FORMATS), required=True, help="Of the new files.")
@click.option("--field", default="", help="Extension of the files in tar files (bin), or column of MDS (tokens).")
@click.option("--shard-size", type=Size(), default="64M", show_default=True, help="Of tar files, and shards of MDS.")
@cluster_options
def export_command(
    selector: ClusterSelector, path: str, destination: str, kind: str, field: str, shard_size: int
) -> None:
    """Write the samples of the dataset PATH into a new directory, in a format of other programs.

    DESTINATION is on this machine, or in the cluster: threefs:///PATH. It appears when it is whole.
    """
    with _connected(selector) as fs, _count(quiet=selector.as_json) as progress:
        done = interchange.export_dataset(
            fs, path, destination, kind, field=field, shard_bytes=shard_size, progress=progress
        )
    _report_transfer(selector, done)


@data.command(
    name="import",
    epilog="""
\b
Examples:
  threefs data import corpus_text_document /datasets/corpus --format megatron
      the files corpus_text_document.bin and corpus_text_document.idx
  threefs data import threefs:///mds/web /datasets/web --format mds --field tokens
  threefs data import shards/ /datasets/images --format webdataset --field jpg
""",
)
@click.argument("source")
@click.argument("path")
@click.option("--format", "kind", type=click.Choice(interchange.FORMATS), required=True, help="Of the files.")
@click.option("--field", default="", help="Extension of the files in tar files (bin), or column of MDS (tokens).")
@click.option("--shard-size", type=Size(), default="256M", show_default=True, help="Of the files of the dataset.")
@cluster_options
def import_command(selector: ClusterSelector, source: str, path: str, kind: str, field: str, shard_size: int) -> None:
    """Make a dataset at PATH of samples in a format of other programs, in their order.

    SOURCE is on this machine, or in the cluster: threefs:///PATH. Of Megatron's format it is the name of the two files
    without its ending. The dataset appears when it is whole.
    """
    with _connected(selector) as fs, _count(quiet=selector.as_json) as progress:
        done = interchange.import_dataset(
            fs, source, path, kind, field=field, shard_bytes=shard_size, progress=progress
        )
    _report_transfer(selector, done)


def _report_transfer(selector: ClusterSelector, done: interchange.Transferred) -> None:
    if selector.as_json:
        output.print_json(dataclasses.asdict(done))
    else:
        click.echo(f"{output.count_of(done.samples, 'sample', 'samples')} in {output.printable(done.path)}")


@contextmanager
def _count(*, quiet: bool) -> Iterator[Callable[[int], None]]:
    """Samples so far: how many there are is not known."""
    if quiet or not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn

    console = Console(stderr=True)
    with Progress(SpinnerColumn(), TextColumn("{task.completed} samples"), console=console, transient=True) as progress:
        bar = progress.add_task("", total=None)
        yield lambda done: progress.update(bar, completed=done)


def _report(selector: ClusterSelector, done: preparing.Prepared, seconds: float) -> None:
    if selector.as_json:
        output.print_json({**dataclasses.asdict(done), "seconds": round(seconds, 3)})
        return
    samples = output.count_of(done.samples, "sample", "samples")
    documents_of = output.count_of(done.documents, "document", "documents")
    shards = output.count_of(done.shards, "shard", "shards")
    click.echo(f"{samples} of {done.tokens} tokens from {documents_of} in {shards}, {seconds:.1f} s")
    if done.dropped_tokens:
        click.echo(f"the last {done.dropped_tokens} tokens fill no sequence and were left out")


@contextmanager
def _connected(selector: ClusterSelector) -> Iterator[FileSystem]:
    with connect(selector.url(), connect_timeout_s=CONNECT_S, key_file=selector.key_file()) as fs:
        yield fs


@contextmanager
def _resumable(path: str) -> Iterator[None]:
    """An error in the input says how to go on."""
    try:
        yield
    except (Corrupt, FileTooLarge) as error:
        raise _with_hint(error, path) from None


def _with_hint(error: ThreefsError, path: str) -> ThreefsError:
    work = f"{path.rstrip('/')}{preparation.SUFFIX}"
    return type(error)(f"{error.message}; mend it and start again: what is done stays in {work} until then.")


@contextmanager
def _progress(*, quiet: bool) -> Iterator[preparation.Progress]:
    if quiet or not sys.stderr.isatty():
        yield lambda phase, done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("")
        shown = ""

        def show(phase: str, done: int, total: int) -> None:
            nonlocal shown
            if phase != shown:
                progress.reset(bar)
                shown = phase
            progress.update(bar, description=phase, completed=done, total=max(1, total))

        yield show
