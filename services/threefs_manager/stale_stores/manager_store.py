"""Detects that the store of this manager is an older copy of the one that the cluster has used (I15).

Nodes report the newest version of the routing that they have seen. The right store has every version that was published
before this term. So a node that has seen a newer one, which this term has not published either, has it from a newer
store. Versions that the term makes itself prove nothing: an older copy would count up to the same numbers, with other
content. So nothing is changed before a node has reported that would know of a newer store, and after the first
contradiction nothing is served.
"""

from threefs.errors import StrangeStore
from threefs.ids import ChainId
from threefs.routing import Routing
from threefs.wire import manager_pb2 as pb


class StaleStoreDetector:
    """Of one term as primary."""

    def __init__(self, version: int) -> None:
        """`version` is that of the routing in the store when the term began."""
        self.confirmed = False  # a node that would know of a newer store has reported none
        self._failure: StrangeStore | None = None
        self._version_at_start = version
        self._newest_published = version  # the newest that a node can have from this store

    def on_published(self, version: int) -> None:
        """A node is sent this version now."""
        self._newest_published = max(self._newest_published, version)

    def check(self, request: pb.RegisterRequest | pb.HeartbeatRequest, *, keeps_chains: bool) -> None:
        """Raises StrangeStore if the node has seen a newer version, or if the store was found to be older before.

        A storage node keeps the versions of its chains. A meta service that is new knows what this term has published,
        and of no other store.
        """
        if request.routing_version > self._newest_published and self._failure is None:
            self._failure = StrangeStore(
                f"the manager's store is an older copy: node {request.node_id} has seen version "
                f"{request.routing_version} of the routing, and the store had {self._newest_published}. Put the newest "
                "one in its place, or restore a backup: `threefs restore BACKUP` (docs/backup.md)"
            )
        self.check_fresh()
        if keeps_chains or 0 < request.routing_version <= self._version_at_start:
            self.confirmed = True

    def check_chains(self, routing: Routing, request: pb.RegisterRequest) -> None:
        """Raises StrangeStore if a target's store keeps a newer version of its chain than the manager's store has."""
        for store in request.stores:
            chain = routing.chains.get(ChainId(store.kept.chain.chain_id))
            if chain is not None and store.kept.chain.version > chain.version and self._failure is None:
                self._failure = StrangeStore(
                    f"the manager's store is an older copy: target {store.target_id} of node {request.node_id} has "
                    f"seen version {store.kept.chain.version} of chain {chain.chain_id}, and the store has "
                    f"{chain.version}. Put the newest one in its place, or restore a backup: `threefs restore BACKUP` "
                    "(docs/backup.md)"
                )
        self.check_fresh()

    def check_fresh(self) -> None:
        """Raises StrangeStore if the store was found to be an older copy."""
        if self._failure is not None:
            raise StrangeStore(self._failure.message)
