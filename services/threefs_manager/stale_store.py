"""Whether the store of this manager is an older copy of the one that the cluster has (I15).

Nodes tell which version of the routing they have seen. A store knows all versions that were given out before this term
as primary, so a node that has seen a later one, which this term has not given out either, has it from a newer store.
What the term itself changes says nothing: an old copy would only count up to where the new one is, in another way. So
nothing is changed before somebody has been heard, and as soon as one node knows better nobody is served any more.
"""

from threefs.errors import StrangeStore
from threefs.ids import ChainId
from threefs.routing import Routing
from threefs.wire import manager_pb2 as pb


class StaleStoreDetector:
    """Begun anew with every term as primary."""

    def __init__(self, version: int) -> None:
        """`version` of the routing, as the store had it when the term began."""
        self.confirmed = False  # somebody has been heard, and knows nothing newer
        self._failure: StrangeStore | None = None
        self._newest_published = version  # the newest that anybody can have from here

    def on_published(self, version: int) -> None:
        """A node gets to know this version now."""
        self._newest_published = max(self._newest_published, version)

    def check(self, request: pb.RegisterRequest | pb.HeartbeatRequest) -> None:
        """Raises StrangeStore if the node was told of a newer version, or another node was before."""
        if request.routing_version > self._newest_published and self._failure is None:
            self._failure = StrangeStore(
                f"the manager's store is an older copy: node {request.node_id} has seen version "
                f"{request.routing_version} of the routing, and the store had {self._newest_published}. Put the newest "
                "one in its place, or restore a backup: `threefs restore BACKUP` (docs/backup.md)"
            )
        self.check_fresh()
        self.confirmed = True

    def check_chains(self, routing: Routing, request: pb.RegisterRequest) -> None:
        """Raises StrangeStore if a store keeps a newer version of its chain than there is here."""
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
        """Raises StrangeStore if nothing may be changed."""
        if self._failure is not None:
            raise StrangeStore(self._failure.message)
