"""The health of chains, and of the moves between targets: one function per reason."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass

from threefs.health.answers import Answers, listed, node_name
from threefs.health.verdict import Reason, Severity
from threefs.human_readable import count_of
from threefs.wire import manager_pb2 as pb

#: Of a chain, the worst first.
CHAIN_STATES = ("unserved", "below_minimum", "degraded", "full")
_MOST_NAMED = 8  # targets in a command that is advised


@dataclass(frozen=True, slots=True)
class ChainCopies:
    """How many copies a chain has, has to have for a write, and should have."""

    chain: pb.Chain
    serving: int
    needed: int
    planned: int

    @property
    def state(self) -> str:
        """One of CHAIN_STATES."""
        if not self.serving:
            return "unserved"
        if self.serving < self.needed:
            return "below_minimum"
        return "degraded" if self.serving < self.planned else "full"


def chain_copies(answers: Answers) -> Iterator[ChainCopies]:
    needed = {chain: table.min_replicas or 1 for table in answers.status.tables for chain in table.chains}
    filling = {(move.chain_id, move.added_target) for move in answers.status.moves if move.added_target}
    for chain in answers.status.chains:
        serving = sum(member.state == pb.SERVING for member in chain.members)
        planned = sum((chain.chain_id, member.target_id) not in filling for member in chain.members)
        yield ChainCopies(chain, serving, needed.get(chain.chain_id, 1), planned)


def unchangeable_chains(answers: Answers) -> Iterator[Reason]:
    if answers.status.failure:
        yield Reason(
            "chains_cannot_change",
            Severity.ERR,
            "the manager cannot change chains now, so dead targets stay in them and writes to those chains wait: "
            f"{answers.status.failure}",
            "free space on the disk of the manager, or repair its engine (etcd, PostgreSQL)",
        )


def unserved_chains(answers: Answers) -> Iterator[Reason]:
    """Chains that no target serves."""
    for one in chain_copies(answers):
        if one.serving:
            continue
        last = [member.target_id for member in one.chain.members if member.state == pb.LASTSRV]
        awaited = listed(map(answers.target_name, last)) or "a target that has its bytes"
        number = one.chain.chain_id
        yield Reason(
            "chain_unserved",
            Severity.ERR,
            f"chain {number} has 0 of {one.planned} copies: its reads and writes wait for {awaited} to return",
            f"start that node; if its disk is lost for good: `threefs chain accept-loss {number}`",
        )


def unwritable_chains(answers: Answers) -> Iterator[Reason]:
    """Chains that serve reads, with fewer copies than a write needs."""
    found = [one for one in chain_copies(answers) if 0 < one.serving < one.needed]
    if found:
        yield Reason(
            "chain_below_minimum",
            Severity.ERR,
            f"{count_chains(len(found))} fewer copies than a write needs, so reads go on and writes wait: "
            + listed(f"chain {one.chain.chain_id} has {one.serving}, a write needs {one.needed}" for one in found),
            f"{_remedy(answers, found, 'start the nodes of the missing targets:')}; or lower the minimum: "
            "`threefs chain min-replicas`",
        )


def degraded_chains(answers: Answers) -> Iterator[Reason]:
    """Chains that accept writes, with fewer copies than planned."""
    found = [one for one in chain_copies(answers) if one.needed <= one.serving < one.planned and one.serving]
    if found:
        yield Reason(
            "chain_degraded",
            Severity.WARN,
            f"{count_chains(len(found))} fewer copies than planned: "
            + listed(f"chain {one.chain.chain_id} has {one.serving} of {one.planned}" for one in found),
            f"{_remedy(answers, found, 'bring back')}; a target that is syncing needs only time (`threefs status`)",
        )


def _remedy(answers: Answers, found: Iterable[ChainCopies], otherwise: str) -> str:
    """What to do about the targets that do not serve: those on a full disk need room, `otherwise` is for the others."""
    missing = [m for one in found for m in one.chain.members if m.state != pb.SERVING]
    full = {report.target_id for _, report in answers.reports() if report.read_only}
    parts = []
    if without_room := [member for member in missing if member.target_id in full]:
        parts.append(
            "remove files, empty the trash, or add a node and run `threefs rebalance`, because the disks of these "
            f"targets are full: {_named(answers, without_room)}"
        )
    if others := [member for member in missing if member.target_id not in full]:
        parts.append(f"{otherwise} {_named(answers, others)}")
    return "; ".join(parts)


def _named(answers: Answers, members: Iterable[pb.ChainMember]) -> str:
    return listed(
        f"{answers.target_name(member.target_id)} ({pb.PublicState.Name(member.state).lower()})" for member in members
    )


def held_targets(answers: Answers) -> Iterator[Reason]:
    """Targets that an administrator has taken out of service. One that a move has replaced since does not return."""
    members = {member.target_id for chain in answers.status.chains for member in chain.members}
    out = (pb.HOLD_OFFLINE, pb.HOLD_FORCED)
    held = [t.target_id for t in answers.routing.targets if t.hold in out and t.target_id in members]
    if held:
        yield Reason(
            "target_held",
            Severity.WARN,
            f"{count_of(len(held), 'target is', 'targets are')} out of service because an administrator wants it: "
            + listed(map(answers.target_name, held)),
            f"when the maintenance is done: `threefs target online {_named_all(answers, held)}`",
        )


def _named_all(answers: Answers, held: Sequence[int]) -> str:
    """Arguments that name all of these targets: by their nodes, if there are many."""
    if len(held) <= _MOST_NAMED:
        return " ".join(map(str, held))
    return " ".join(f"--node {node}" for node in sorted({answers.node_of(target) for target in held}))


def stuck_moves(answers: Answers) -> Iterator[Reason]:
    """Moves to a node that is silent: each target is filled there first."""
    alive = {row.node.node_id for row in answers.status.nodes if row.alive}
    waiting: dict[int, int] = defaultdict(int)
    for move in answers.status.moves:
        if move.added_target and move.added_node not in alive:
            waiting[move.added_node] += 1
    for node, count in sorted(waiting.items()):
        yield Reason(
            "moves_stuck",
            Severity.WARN,
            f"{count_of(count, 'target moves', 'targets move')} to node {node}, which is silent",
            f"start node {node}; the moves go on by themselves (`threefs node ls`)",
        )


def stuck_drains(answers: Answers) -> Iterator[Reason]:
    """Nodes that drain, and have targets that do not move: the manager finds no place for them."""
    resting = _resting_chains(answers)
    members = [member.target_id for chain in resting for member in chain.members]
    for row in answers.nodes(pb.STORAGE):
        left = sum(answers.node_of(target) == row.node.node_id for target in members) if row.node.draining else 0
        if left:
            yield Reason(
                "drain_stuck",
                Severity.WARN,
                f"{node_name(row.node)} drains, but "
                + count_of(left, "of its targets does not move", "of its targets do not move"),
                "start or add nodes that can take them, then look again after T "
                f"({answers.lease_s:g} s); or keep them: `threefs node undrain {row.node.node_id}`",
            )


def stuck_copies(answers: Answers) -> Iterator[Reason]:
    """Chains that are to have more copies, and get none: the manager finds no place for them."""
    members = {chain.chain_id: len(chain.members) for chain in _resting_chains(answers)}
    for table in answers.status.tables:
        lacking = sum(members.get(chain, table.replicas) < table.replicas for chain in table.chains)
        if lacking:
            yield Reason(
                "copies_stuck",
                Severity.WARN,
                f"{count_chains(lacking)} fewer copies than the {table.replicas} that table {table.table_id} is to "
                "have, and none is being added",
                f"remove files or add nodes that can take them, then look again after T ({answers.lease_s:g} s); or "
                f"ask for fewer: `threefs table set-replicas {table.table_id}`",
            )


def _resting_chains(answers: Answers) -> list[pb.Chain]:
    """The chains that no move is planned for, though the manager plans moves now. It does not as long as one proceeds,
    and one that waits may wait for ever."""
    move_of = {move.chain_id: move for move in answers.status.moves}
    chains = answers.status.chains
    reports = (report for row in answers.status.nodes for report in row.targets)
    sound = {report.target_id for report in reports if not (report.unrepaired_chunks or report.lost_chunks)}
    held = {target.target_id for target in answers.routing.targets if target.hold != pb.HOLD_NONE}
    if any(_proceeds(move_of[chain.chain_id], chain, sound, held) for chain in chains if chain.chain_id in move_of):
        return []
    return [chain for chain in chains if chain.chain_id not in move_of]


def _proceeds(move: pb.Move, chain: pb.Chain, sound: Set[int], held: Set[int]) -> bool:
    """Whether other moves are planned only after this one, as the manager judges by what it tells of the chain."""
    states = {member.target_id: member.state for member in chain.members}
    if pb.SERVING not in states.values():
        return False
    if not move.added_target:
        return _removal_proceeds(move.removed_target, chain, sound, held)
    added = states.get(move.added_target, pb.SYNCING)  # it has not begun
    return added != pb.SERVING and (added == pb.SYNCING or pb.SYNCING not in states.values())


def _removal_proceeds(removed: int, chain: pb.Chain, sound: Set[int], held: Set[int]) -> bool:
    """A removal that has begun holds up no plans. One that has not waits for the copies that stay to be sound, and for
    members that give way to an administrator. So these are the targets that say of themselves that they are sound, and
    those that are held."""
    serving = {member.target_id for member in chain.members if member.state == pb.SERVING}
    is_under_way = any(member.leaving for member in chain.members)
    is_whole = removed not in serving or len(serving) == len(chain.members)
    return is_whole and not is_under_way and serving.isdisjoint(held) and serving - {removed} <= sound


def chains_in_one_domain(answers: Answers) -> Iterator[Reason]:
    """Chains with two members in one domain, though there are domains enough. Chains that change are left out."""
    rows = answers.nodes(pb.STORAGE)
    domain_of = {row.node.node_id: row.node.domain for row in rows}
    usable = {row.node.domain for row in rows if row.alive and not row.node.draining}
    changing = {move.chain_id for move in answers.status.moves}
    found = []
    for chain in answers.status.chains:
        domains = [domain_of.get(answers.node_of(member.target_id), "") for member in chain.members]
        shared = sorted({domain for domain in domains if domain and domains.count(domain) > 1})
        if shared and len(domains) <= len(usable) and chain.chain_id not in changing:
            found.append(f"chain {chain.chain_id} in {', '.join(shared)}")
    if found:
        yield Reason(
            "copies_in_one_domain",
            Severity.WARN,
            f"{count_chains(len(found))} several copies in one failure domain, which may fail together: "
            + listed(found),
            "`threefs rebalance` parts them as far as disks of other domains have room; if it moves nothing, add nodes "
            "in other domains",
        )


def count_chains(count: int) -> str:
    return count_of(count, "chain has", "chains have")
