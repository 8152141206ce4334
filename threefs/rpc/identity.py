"""The identity of a process, which peers exchange in HELLO before anything else and check (`handshake`)."""

from dataclasses import dataclass, field

from threefs.errors import WrongCluster


@dataclass(frozen=True, slots=True)
class Identity:
    """`cluster_id` may be empty in a client that has not learned it; `client_id` is 32 hex digits, one per process.

    `token` is the text of the cluster's key; empty: the cluster has none.
    """

    cluster_id: str
    client_id: str
    token: str = field(default="", repr=False)
    program: str = ""


def check_cluster(own: str, theirs: str) -> None:
    """Raises WrongCluster if the ids differ. A peer that does not know its cluster yet has an empty id."""
    if own and theirs and own != theirs:
        raise WrongCluster(f"the peer belongs to cluster {theirs}, this side to cluster {own}")
