"""`threefs meta dump`, `threefs meta load`: all records of a store to a file and back, to change the engine."""

import contextlib
import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import BinaryIO, TypeVar

import click
import uvloop
from threefs_backup.follower import MetaServices, in_thread, pairs_of, snapshot_pages
from threefs_client import AsyncFileSystem

from threefs.env.disk import sync_directory
from threefs.env.random import RANDOM
from threefs.errors import AlreadyExists, Corrupt, NotFound
from threefs.kv import dump as dumps
from threefs.kv import engine_url
from threefs.kv.dump import Content
from threefs.kv.engine_api import DurableEngine
from threefs_cli import output
from threefs_cli.cluster_selector import ClusterSelector, cluster_options
from threefs_cli.error_names import with_filename
from threefs_cli.option_types import json_option

T = TypeVar("T")

ENGINE_VARIABLE = "THREEFS_ENGINE"
_ENGINE_HELP = "rocks:///directory, etcd://host:port,... or postgresql://..."

engine_option = click.option(
    "--engine",
    "engine",
    metavar="URL",
    envvar=ENGINE_VARIABLE,
    required=True,
    show_envvar=True,
    help=_ENGINE_HELP,
)
file_argument = click.argument("file", type=click.Path(path_type=Path, dir_okay=False))


@click.group()
def meta() -> None:
    """Copy all records of a manager or meta service to a file, and from a file to another engine."""


@meta.command(
    epilog="""
\b
Examples:
  threefs meta dump --dir /srv/cluster meta.dump        from a running cluster
  threefs meta dump --engine rocks:///var/lib/threefs/meta/kv meta.dump
  THREEFS_ENGINE=postgresql://threefs:...@db/threefs threefs meta dump meta.dump
"""
)
@click.option("--engine", metavar="URL", envvar=ENGINE_VARIABLE, show_envvar=True, help=_ENGINE_HELP)
@file_argument
@cluster_options
def dump(selector: ClusterSelector, engine: str | None, file: Path) -> None:
    """Write all records of a store to FILE.

    The records are those of one moment. Without --engine, a running meta service sends its embedded store. With
    --engine, etcd and PostgreSQL may be in use, but the service of an embedded store must be stopped.
    """
    _check_free(file)
    if engine and (selector.address or selector.directory):
        raise click.UsageError("--engine names a store, --address and --dir a cluster; give one of them")
    # Of its own name: another dump may be under way to the same file.
    unfinished = file.with_name(f"{file.name}.{RANDOM.token(4).hex()}.unfinished")

    async def dump_store(store: DurableEngine) -> Content:
        with _create_durable(unfinished) as out:
            return await dumps.dump(store, out)

    async def dump_running_service(fs: AsyncFileSystem) -> Content:
        with _create_durable(unfinished) as out:
            writer = dumps.Writer(out)
            async for page in snapshot_pages(MetaServices(fs)):
                await in_thread(writer.put_many, pairs_of(page))
            return writer.end()

    try:
        if engine:
            engine_url.require(engine_url.parse(engine))
            content = _with_store(engine, dump_store)
        else:
            content = selector.run(dump_running_service)
        if not content.records:
            raise NotFound(f"the store {engine and engine_url.parse(engine)} is empty; nothing was written")
        _check_free(file)
        unfinished.rename(file)
        sync_directory(file.absolute().parent)
    finally:
        unfinished.unlink(missing_ok=True)
    _done("dumped", content, file, selector.as_json)


def _check_free(file: Path) -> None:
    if file.exists():
        raise AlreadyExists(f"{file} exists already; remove it, or choose another name")


@contextlib.contextmanager
def _create_durable(file: Path) -> Iterator[BinaryIO]:
    """A new file, which is durable at the end of the block."""
    with with_filename(file), os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
        yield out
        out.flush()
        os.fsync(out.fileno())


@meta.command(
    epilog="""
\b
Examples:
  threefs meta load --engine etcd://a:2379,b:2379,c:2379/meta meta.dump
"""
)
@engine_option
@file_argument
@json_option
def load(engine: str, file: Path, as_json: bool) -> None:
    """Fill an empty store from FILE.

    The whole file is checked before anything is written. Start no service on the store before this command ends. If it
    is interrupted, empty the store and run it again.
    """

    async def load_store(store: DurableEngine) -> Content:
        with file.open("rb") as source:
            try:
                return await dumps.load(store, source)
            except Corrupt as error:
                raise Corrupt(f"{file}: {error}") from None
            except AlreadyExists as error:
                raise AlreadyExists(f"{engine_url.parse(engine)}: {error}") from None

    engine_url.require_own_place(engine_url.parse(engine))
    _done("loaded", _with_store(engine, load_store), file, as_json)


def _with_store(engine: str, work: Callable[[DurableEngine], Awaitable[T]]) -> T:
    url = engine_url.parse(engine)

    async def opened() -> T:
        store = await engine_url.open_engine(url)
        try:
            return await work(store)
        finally:
            await store.close()

    return uvloop.run(opened())


def _done(did: str, content: Content, file: Path, as_json: bool) -> None:
    if as_json:
        output.print_json({"file": str(file), "records": content.records, "length_bytes": content.length_bytes})
    else:
        click.echo(f"{did} {content.records} records, {output.size(content.length_bytes)}")
