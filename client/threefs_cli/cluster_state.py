"""The primary manager's knowledge of a cluster, as commands about chains, moves and disks need it."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import click
from threefs_client import AsyncFileSystem

from threefs.cluster.manager_client import NO_ANSWER
from threefs.env.clock import CLOCK
from threefs.errors import InvalidArgument, NotFound
from threefs.rpc.methods import GET_ROUTING, GET_STATUS
from threefs.wire import manager_pb2 as pb
from threefs_cli.cluster_selector import managers

#: A new primary lets changes wait for the reports of storage processes, for T at most.
CALL_TIMEOUT_S = 30.0
#: How long commands that follow a cluster wait for a manager that starts again, or for the next primary.
ABSENCE_S = 60.0
_POLL_S = 0.5

T = TypeVar("T")


@dataclass(frozen=True)
class ClusterState:
    """Status and routing, read one after the other: a target of the one may be missing in the other."""

    status: pb.GetStatusReply
    routing: pb.Routing

    @cached_property
    def node_of(self) -> dict[int, int]:
        """The node of each target."""
        return {target.target_id: target.node_id for target in self.routing.targets}

    @cached_property
    def nodes(self) -> dict[int, pb.NodeStatus]:
        return {row.node.node_id: row for row in self.status.nodes}

    @cached_property
    def reports(self) -> dict[int, pb.TargetReport]:
        """The last report of each target."""
        return {report.target_id: report for row in self.status.nodes for report in row.targets}

    @cached_property
    def table_of(self) -> dict[int, pb.ChainTable]:
        """The table of each chain."""
        return {chain: table for table in self.status.tables for chain in table.chains}

    @cached_property
    def moving(self) -> set[int]:
        """The chains that a move changes."""
        return {move.chain_id for move in self.status.moves}

    @cached_property
    def held(self) -> set[int]:
        """The targets that an administrator has taken out of service."""
        return {target.target_id for target in self.routing.targets if target.hold in (pb.HOLD_OFFLINE, pb.HOLD_FORCED)}

    def node_status(self, target_id: int) -> pb.NodeStatus | None:
        return self.nodes.get(self.node_of.get(target_id, 0))

    def chain(self, chain_id: int) -> pb.Chain:
        """Raises NotFound."""
        found = next((one for one in self.status.chains if one.chain_id == chain_id), None)
        if found is None:
            raise NotFound(f"there is no chain {chain_id}; `threefs chain ls` lists them")
        return found


async def read_state(fs: AsyncFileSystem, url: str) -> ClusterState:
    services = managers(fs, url)
    status = await services.call(GET_STATUS, pb.GetStatusRequest(), timeout_s=CALL_TIMEOUT_S)
    reply = await services.call(GET_ROUTING, pb.GetRoutingRequest(), timeout_s=CALL_TIMEOUT_S)
    return ClusterState(status, reply.routing)


async def until_answered(ask: Callable[[], Awaitable[T]]) -> T:
    """The result of `ask`, which is called again while no manager answers, for a minute at most. It says so, once."""
    silent_since: float | None = None
    while True:
        try:
            return await ask()
        except NO_ANSWER as error:
            if silent_since is None:
                silent_since = CLOCK.monotonic()
                click.echo(f"no manager answers, and this command waits for one: {error}", err=True)
            elif CLOCK.monotonic() - silent_since >= ABSENCE_S:
                raise
        await asyncio.sleep(_POLL_S)


async def check_table(fs: AsyncFileSystem, url: str, table_id: int) -> None:
    """Raises InvalidArgument if the cluster has no such chain table."""
    status = await managers(fs, url).call(GET_STATUS, pb.GetStatusRequest(), timeout_s=CALL_TIMEOUT_S)
    if all(one.table_id != table_id for one in status.tables):
        raise InvalidArgument(f"chain table {table_id} does not exist; `threefs table ls` lists the tables")
