"""`threefs meta dump`, `threefs meta load`: all records of a store to a file and back, for a change of engines."""

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import click
import uvloop

from threefs.errors import AlreadyExists, Corrupt, NotFound
from threefs.kv import dump as dumps
from threefs.kv import engines
from threefs.kv.dump import Content
from threefs.kv.port import Durable
from threefs_cli import output

T = TypeVar("T")

ENGINE_VARIABLE = "THREEFS_ENGINE"

engine_option = click.option(
    "--engine",
    "engine",
    metavar="URL",
    envvar=ENGINE_VARIABLE,
    required=True,
    show_envvar=True,
    help="rocks:///directory, etcd://host:port,... or postgresql://...",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
file_argument = click.argument("file", type=click.Path(path_type=Path, dir_okay=False))


@click.group()
def meta() -> None:
    """The records of managers and meta services."""


@meta.command(
    epilog="""
\b
Examples:
  threefs meta dump --engine rocks:///var/lib/threefs/meta/kv meta.dump
  THREEFS_ENGINE=postgresql://threefs:...@db/threefs threefs meta dump meta.dump
"""
)
@engine_option
@file_argument
@json_option
def dump(engine: str, file: Path, as_json: bool) -> None:
    """Write all records of a store to FILE.

    They are of one moment. Services may go on with etcd and PostgreSQL meanwhile; an embedded store must not be in use.
    """
    if file.exists():
        raise AlreadyExists(f"{file} exists already")
    unfinished = file.with_name(f"{file.name}.unfinished")

    async def work(store: Durable) -> Content:
        with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
            content = await dumps.dump(store, out)
            if not content.records:
                raise NotFound(f"the store {engines.parse(engine)} is empty; nothing was written")
            out.flush()
            os.fsync(out.fileno())
        return content

    engines.require(engines.parse(engine))
    try:
        content = _with_store(engine, work)
        unfinished.rename(file)
    finally:
        unfinished.unlink(missing_ok=True)
    _done("dumped", content, file, as_json)


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

    The file is checked to its end before anything is written. Start no service on the store before this is done; when
    it is interrupted, empty the store and begin anew.
    """

    async def work(store: Durable) -> Content:
        with file.open("rb") as source:
            try:
                return await dumps.load(store, source)
            except Corrupt as error:
                raise Corrupt(f"{file}: {error}") from None
            except AlreadyExists as error:
                raise AlreadyExists(f"{engines.parse(engine)}: {error}") from None

    _done("loaded", _with_store(engine, work), file, as_json)


def _with_store(engine: str, work: Callable[[Durable], Awaitable[T]]) -> T:
    url = engines.parse(engine)

    async def opened() -> T:
        store = await engines.open_engine(url)
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


COMMANDS = (meta,)
