"""`threefs chunk`: where the bytes of a file are, and what each copy holds."""

import click
from threefs_client import AsyncFileSystem

from threefs.rpc.methods import CHAIN_EVENTS
from threefs.wire import manager_pb2 as pb
from threefs_cli import chain_rows, chunk_copies, chunk_events, output
from threefs_cli.chunk_copies import Place
from threefs_cli.cluster_selector import ClusterSelector, cluster_options, managers
from threefs_cli.cluster_state import CALL_TIMEOUT_S
from threefs_cli.option_types import Size


class PlaceType(click.ParamType[Place]):
    """FILE:OFFSET; the offset in bytes, or with a unit: /a:10M."""

    name = "place"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Place:
        path, colon, offset = str(value).rpartition(":")
        if not (path and colon):
            self.fail(f"{value!r} is not FILE:OFFSET: say for example /data/a:0 or /data/a:10M", param, ctx)
        return Place(path, Size().convert(offset, param, ctx))


@click.group()
def chunk() -> None:
    """Chunks: the pieces that a file is cut into. Each has a copy on every disk of its chain."""


@chunk.command(
    epilog="""
\b
Examples:
  threefs chunk where /data/model.bin:0
  threefs chunk where /data/model.bin:10M --json
"""
)
@click.argument("place", type=PlaceType(), metavar="FILE:OFFSET")
@cluster_options
def where(selector: ClusterSelector, place: Place) -> None:
    """Show where a byte of a file is: its chunk, the chain, and what each member of it holds.

    Copies of members that serve are equal, but for a write that is on its way. What a client has not flushed is not
    there yet.
    """
    url = selector.url()
    found = selector.run(lambda fs: chunk_copies.find(fs, url, place))
    if selector.as_json:
        output.print_json(chunk_copies.describe(found))
        return
    number, name = found.chunk.number, output.printable(place.path)
    row = chain_rows.chain_row(found.state, found.chain)
    click.echo(
        f"byte {place.offset} of {name} is in chunk {number} of inode {found.chunk.inode}, on chain "
        f"{row['chain_id']} of table {row['table_id']} (version {row['version']})"
    )
    if place.offset >= found.length:
        click.echo(f"the file ends before it: it has {found.length} bytes")
    table = output.table("target", "node", "state", "what it holds")
    for copy in found.copies:
        member = chain_rows.member_row(found.state, copy.member)
        state = member["state"] + (", leaving" if member["leaving"] else "")
        table.add_row(str(member["target_id"]), str(member["node_id"]), state, chunk_copies.copy_text(copy))
    output.print_table(table)
    if not found.agree:
        click.echo("the copies differ, or one does not answer: `threefs fsck` says more")


@chunk.command(
    epilog="""
\b
Examples:
  threefs chunk story /data/model.bin:0
  threefs chunk story /data/model.bin:10M --json
"""
)
@click.argument("place", type=PlaceType(), metavar="FILE:OFFSET")
@cluster_options
def story(selector: ClusterSelector, place: Place) -> None:
    """Tell what has happened to the chunk of a byte: its versions, repairs and copies, and the changes of its chain.

    Storage processes and the primary manager remember the last events only, since their start.
    """
    url = selector.url()
    found, told = selector.run(lambda fs: _story(fs, url, place))
    if selector.as_json:
        output.print_json(chunk_copies.describe(found) | {"events": [chunk_events.describe(one) for one in told]})
        return
    click.echo(f"chunk {found.chunk.number} of inode {found.chunk.inode}, on chain {found.chain.chain_id}")
    for one in told:
        click.echo(chunk_events.line(one))
    for copy in found.copies:
        click.echo(f"{'now':>12}  target {copy.member.target_id}: {chunk_copies.copy_text(copy)}")


async def _story(fs: AsyncFileSystem, url: str, place: Place) -> tuple[chunk_copies.Found, list[chunk_events.Event]]:
    found = await chunk_copies.find(fs, url, place)
    request = pb.ChainEventsRequest(chain_id=found.chain.chain_id)
    reply = await managers(fs, url).call(CHAIN_EVENTS, request, timeout_s=CALL_TIMEOUT_S)
    return found, chunk_events.merged(found.copies, reply.events)
