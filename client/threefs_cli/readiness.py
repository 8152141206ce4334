"""Which chains of a cluster are ready, by what the manager knows of their targets."""

from threefs.routing import LocalState
from threefs.wire import manager_pb2 as pb


def unready_chains(status: pb.GetStatusReply) -> list[int]:
    """The chains that take no writes of clients now: too few targets serve, or one that should serve has not said in
    the newest version of the chain that it does, so that writes wait until it does or is put out."""
    minimums = {chain: table.min_replicas or 1 for table in status.tables for chain in table.chains}
    return [
        chain.chain_id
        for chain in status.chains
        if (found := _serving(status, chain)) is None or found < minimums.get(chain.chain_id, 1)
    ]


def incomplete_chains(status: pb.GetStatusReply) -> list[int]:
    """The chains of which not every member serves."""
    return [chain.chain_id for chain in status.chains if _serving(status, chain) != len(chain.members)]


def _serving(status: pb.GetStatusReply, chain: pb.Chain) -> int | None:
    """How many targets of the chain serve; None if one of them does not live, or knows an older version."""
    reports = {report.target_id: report for node in status.nodes if node.alive for report in node.targets}
    serving = [member.target_id for member in chain.members if member.state == pb.SERVING]
    if not all(_serves(reports.get(target), chain.version) for target in serving):
        return None
    return len(serving)


def _serves(report: pb.TargetReport | None, chain_version: int) -> bool:
    if report is None or report.chain_version != chain_version:
        return False
    return report.local_state == LocalState.UPTODATE.value
