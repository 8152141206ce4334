"""How many replicas of a chain must serve for it to take writes of clients."""

from threefs.errors import InvalidArgument


def default_minimum(replicas: int) -> int:
    """Half of all, rounded up. From three replicas on, one lost disk then loses nothing that was acknowledged; 2 of 2
    would stop writes with the first disk."""
    return replicas - replicas // 2


def check_minimum(min_replicas: int, replicas: int) -> None:
    """Raises InvalidArgument unless a chain of `replicas` replicas can have this minimum."""
    if not 1 <= min_replicas <= replicas:
        raise InvalidArgument(f"the minimum of replicas must be 1 to {replicas}, not {min_replicas}")
