"""`threefs ckpt`: checkpoints of jobs."""

import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import threefs_client
from threefs_checkpoint import comparison, safetensors_copy
from threefs_checkpoint.index import Index
from threefs_checkpoint.job_directory import DAMAGE, CheckpointDirectory, read_index
from threefs_checkpoint.loading import load, wanted_of
from threefs_checkpoint.saving import SaveFailedError
from threefs_checkpoint.verification import verify as verify_records
from threefs_client import FileSystem

from threefs.errors import NotSupported
from threefs_cli import output
from threefs_cli.cluster_selector import CONNECT_S, ClusterSelector, cluster_options
from threefs_cli.each_path import raise_last, with_each_blocking
from threefs_cli.safe_write import SafeWriter

_SHOWN = 40  # tensors that `diff` lists of each kind
_SAFETENSORS, _DCP = "safetensors", "dcp"

_format_option = click.option(
    "--format",
    "file_format",
    type=click.Choice([_SAFETENSORS, _DCP]),
    default=_SAFETENSORS,
    show_default=True,
    help="dcp: a directory of torch.distributed.checkpoint, which needs PyTorch.",
)


@click.group()
def ckpt() -> None:
    """List, show, verify, compare, remove, export and import checkpoints."""


def _checkpoint_copy() -> Any:
    try:
        return importlib.import_module("threefs_torch.checkpoint_copy")
    except ImportError as error:
        raise click.ClickException(f"--format dcp needs PyTorch (pip install 'threefs[torch]'): {error}") from None


@contextmanager
def _connected(selector: ClusterSelector) -> Iterator[FileSystem]:
    with threefs_client.connect(selector.url(), connect_timeout_s=CONNECT_S, key_file=selector.key_file()) as fs:
        yield fs


@ckpt.command(
    name="ls",
    epilog="""
\b
Examples:
  threefs ckpt ls /checkpoints/run-7
""",
)
@click.argument("root")
@cluster_options
def list_checkpoints(selector: ClusterSelector, root: str) -> None:
    """List the checkpoints that a job keeps in the directory ROOT, oldest first."""
    with _connected(selector) as fs:
        rows = [_row(fs, each.path, each.kind) for each in CheckpointDirectory(fs, root).published()]
    if selector.as_json:
        output.print_json(rows)
        return
    table = output.table("step", "kind", "saved", "ranks", "tensors", "size", "name", box=None)
    for row in rows:
        if "problem" in row:
            table.add_row("", row["kind"], "", "", "", "", f"{row['path']}: {output.printable(row['problem'])}")
            continue
        saved, size = output.timestamp(row["saved_ns"]), output.size(row["length_bytes"])
        name = row["path"].rpartition("/")[2]
        table.add_row(str(row["step"]), row["kind"], saved, str(row["world"]), str(row["tensors"]), size, name)
    if rows:
        output.print_table(table)
    else:
        click.echo(f"{root} has no checkpoints of a job; their names are step-NUMBER and model-NUMBER")


def _row(fs: FileSystem, path: str, kind: str) -> dict[str, Any]:
    try:
        index = read_index(fs, path)
    except (*DAMAGE, NotSupported) as error:
        return {"path": path, "kind": kind, "problem": str(error)}
    return {"path": path, "kind": kind, **_summary(index)}


def _summary(index: Index) -> dict[str, Any]:
    return {
        "step": index.step,
        "saved_ns": index.saved_ns,
        "world": index.world,
        "tensors": len(index.tensors) + len(index.derived),
        "length_bytes": index.nbytes,
    }


@ckpt.command(
    epilog="""
\b
Examples:
  threefs ckpt show /checkpoints/run-7/step-000000001200
"""
)
@click.argument("path")
@cluster_options
def show(selector: ClusterSelector, path: str) -> None:
    """Show the tensors of a checkpoint: type, shape, size, and in how many slices ranks have saved it."""
    with _connected(selector) as fs:
        index = read_index(fs, path)
    rows: list[dict[str, Any]] = [
        {
            "name": tensor.name,
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "length_bytes": tensor.nbytes,
            "shards": len(tensor.shards),
        }
        for tensor in index.tensors.values()
    ]
    derived: list[dict[str, Any]] = [
        {"name": name, "dtype": each.dtype, "shape": list(index.tensors[each.master].shape), "master": each.master}
        for name, each in index.derived.items()
    ]
    if selector.as_json:
        described = {"path": path, **_summary(index), "chunk_bytes": index.chunk_bytes, "metadata": index.metadata}
        output.print_json({**described, "tensors": rows, "derived": derived})
        return
    saved = output.timestamp(index.saved_ns)
    ranks = output.count_of(index.world, "rank", "ranks")
    click.echo(f"step {index.step}, saved {saved} by {ranks}, metadata {output.printable(str(index.metadata))}")
    table = output.table("tensor", "type", "shape", "size", "slices", box=None)
    for row in rows:
        name, size = output.printable(row["name"]), output.size(row["length_bytes"])
        table.add_row(name, row["dtype"], str(row["shape"]), size, str(row["shards"]))
    for row in derived:
        source = f"from {output.printable(row['master'])}"
        table.add_row(output.printable(row["name"]), row["dtype"], str(row["shape"]), source, "")
    output.print_table(table)


@ckpt.command(
    epilog="""
\b
Examples:
  threefs ckpt verify /checkpoints/run-7/step-000000001200
  threefs ckpt verify --read /models/base /models/tuned
"""
)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--read", is_flag=True, help="Read every byte too. Without it, what storage has recorded is compared.")
@cluster_options
def verify(selector: ClusterSelector, paths: tuple[str, ...], read: bool) -> None:
    """Compare checkpoints with the checksums in their indexes. Exit code 1: one of them is damaged.

    One that cannot be verified is reported, and keeps the others from nothing.
    """
    with _connected(selector) as fs:
        verified, failures = with_each_blocking(paths, lambda path: _problem(fs, path, read))
    rows = [{"path": path, "valid": not problem, "problem": problem} for path, problem in verified]
    if selector.as_json:
        output.print_json(rows)
    else:
        for row in rows:
            click.echo(f"{row['path']}: {row['problem'] or 'valid'}")
    raise_last(failures)
    click.get_current_context().exit(0 if all(row["valid"] for row in rows) else 1)


def _problem(fs: FileSystem, path: str, read: bool) -> str:
    try:
        index = read_index(fs, path)
        verify_records(fs, path, index)
        for name, part in wanted_of(index, list(index.tensors)).items() if read else ():
            load(fs, path, index, {name: part})  # one at a time: a checkpoint may be larger than the memory
    except (*DAMAGE, NotSupported) as error:
        return str(error)
    return ""


@ckpt.command(
    epilog="""
\b
Examples:
  threefs ckpt diff /checkpoints/run-7/step-000000001200 /checkpoints/run-7/step-000000001100
"""
)
@click.argument("first")
@click.argument("second")
@cluster_options
def diff(selector: ClusterSelector, first: str, second: str) -> None:
    """Compare two checkpoints tensor by tensor, however they were sharded. Exit code 1: their tensors differ. Other
    metadata are told, and do not count."""
    with _connected(selector) as fs:
        found = comparison.compare(fs, first, second)
    if selector.as_json:
        output.print_json({"equal": found.equal, **found._asdict()})
    else:
        for title, names in (
            (f"only in {first}", found.only_first),
            (f"only in {second}", found.only_second),
            ("other type or shape", found.reshaped),
            ("other content", found.changed),
        ):
            for name in names[:_SHOWN]:
                click.echo(f"{title}: {output.printable(name)}")
            if len(names) > _SHOWN:
                click.echo(f"{title}: and {len(names) - _SHOWN} more")
        click.echo(f"{output.count_of(len(found.same), 'tensor is', 'tensors are')} the same")
        if not found.same_metadata:
            click.echo("the metadata of the user are not the same")
    click.get_current_context().exit(0 if found.equal else 1)


@ckpt.command(
    epilog="""
\b
Examples:
  threefs ckpt rm /checkpoints/run-7/step-000000001100
"""
)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@cluster_options
def rm(selector: ClusterSelector, paths: tuple[str, ...]) -> None:
    """Remove checkpoints. Each loses its name in one step, before its files are removed.

    One that cannot be removed is reported, and keeps the others from nothing.
    """

    def remove(path: str) -> None:
        read_index(fs, path)  # what is no checkpoint is not removed
        root, _, _ = path.rstrip("/").rpartition("/")
        CheckpointDirectory(fs, root).remove(path.rstrip("/"))

    with _connected(selector) as fs:
        removed, failures = with_each_blocking(paths, remove)
    if selector.as_json:
        output.print_json({"removed": [path for path, _ in removed]})
    raise_last(failures)


@ckpt.command(
    name="export",
    epilog="""
\b
Examples:
  threefs ckpt export /checkpoints/run-7/model-000000001200 model.safetensors
  threefs ckpt export /checkpoints/run-7/step-000000001200 step-1200 --format dcp
""",
)
@click.argument("path")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--tensor", "tensors", multiple=True, metavar="NAME", help="Only this tensor; may be repeated.")
@_format_option
@cluster_options
def export_checkpoint(
    selector: ClusterSelector, path: str, file: Path, tensors: tuple[str, ...], file_format: str
) -> None:
    """Write a checkpoint to the local safetensors file FILE, or with --format dcp to a new directory FILE of
    torch.distributed.checkpoint. It appears when it is whole.

    A file takes the place of an older one of that name.
    """
    if file_format == _DCP:
        with _connected(selector) as fs:
            length = _checkpoint_copy().export(fs, path, file, list(tensors) or None)
    else:
        length = _export_safetensors(selector, path, file, tensors)
    if selector.as_json:
        output.print_json({"path": path, "file": str(file), "length_bytes": length})


def _export_safetensors(selector: ClusterSelector, path: str, file: Path, tensors: tuple[str, ...]) -> int:
    writer = SafeWriter(os.path.dirname(file))
    with (
        _connected(selector) as fs,
        writer.new_file(str(file), 0o644) as descriptor,
        open(descriptor, "wb", closefd=False) as opened,
    ):
        return safetensors_copy.export(fs, path, list(tensors) or None, opened.write)


@ckpt.command(
    name="import",
    epilog="""
\b
Examples:
  threefs ckpt import model.safetensors /models/base
  threefs ckpt import step-1200 /models/other --format dcp
""",
)
@click.argument("file", type=click.Path(path_type=Path, exists=True))
@click.argument("path")
@_format_option
@cluster_options
def import_checkpoint(selector: ClusterSelector, file: Path, path: str, file_format: str) -> None:
    """Save the local safetensors file FILE, or with --format dcp the directory FILE of torch.distributed.checkpoint,
    as the checkpoint PATH, which appears when it is whole.

    It takes the place of an older checkpoint at PATH. What is no checkpoint is not replaced. Values of a directory
    that are no tensors are left out, and named.
    """
    left_out: list[str] = []
    with _connected(selector) as fs:
        try:
            if file_format == _DCP:
                left_out = _checkpoint_copy().import_directory(fs, file, path)
            elif file.is_dir():
                raise click.BadParameter(f"{file} is a directory; --format dcp imports one")
            else:
                safetensors_copy.import_file(fs, file, path)
        except SaveFailedError as error:
            raise click.ClickException(str(error)) from None
        index = read_index(fs, path)
    if selector.as_json:
        output.print_json({"file": str(file), "path": path, **_summary(index), "left_out": left_out})
        return
    for name in left_out:
        click.echo(f"left out, because it is no tensor: {output.printable(name)}")
