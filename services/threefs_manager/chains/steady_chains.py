"""Which chains a sweep looks at: a large cluster has tens of thousands, and at most times nothing happens to them.

A chain is steady when all its members serve and are up to date, and nobody wants one of them to leave. From then on
only events can change it, which queue the chain themselves (another report, the death of a process), another record of
the chain or of a target, a report that a peer cannot be reached, or the silence of a member.
"""

from collections.abc import Iterable

from threefs.ids import ChainId, TargetId
from threefs.routing import EMPTY, Chain, Hold, LocalState, PublicState, Routing
from threefs_manager.chains.transitions import Observed


class SteadyChains:
    """Of one term as primary."""

    def __init__(self) -> None:
        self._routing = EMPTY
        self._chains: set[ChainId] = set()  # in that routing

    def on_evaluation(self, chain: Chain, routing: Routing, observed: Observed, yielding: TargetId | None) -> None:
        """The chain was looked at; `yielding` is the member that has to leave it, if any."""
        self._follow(routing)
        if yielding is None and all(
            member.state is PublicState.SERVING
            and not member.leaving
            and routing.hold(member.target_id) is Hold.NONE
            and observed.get(member.target_id) is LocalState.UPTODATE
            for member in chain.members
        ):
            self._chains.add(chain.chain_id)
        else:
            self._chains.discard(chain.chain_id)

    def to_sweep(self, routing: Routing, silent: Iterable[TargetId], *, links_fail: bool) -> set[ChainId]:
        """The chains that may have changed without an event. `silent` are targets that were silent for T."""
        self._follow(routing)
        if links_fail:
            self._chains.clear()
        found = routing.chains.keys() - self._chains
        found.update(routing.targets[target].chain_id for target in silent if target in routing.targets)
        return found

    def _follow(self, routing: Routing) -> None:
        """Snapshots of a term share the records that are the same in both."""
        before, self._routing = self._routing, routing
        if routing.chains is not before.chains:
            self._chains = {one for one in self._chains if routing.chains.get(one) is before.chains[one]}
        if routing.targets is not before.targets:
            for target_id, target in routing.targets.items():
                if before.targets.get(target_id) is not target:
                    self._chains.discard(target.chain_id)
