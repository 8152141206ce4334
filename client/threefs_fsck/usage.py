"""Compares the sums that quotas keep with a count of all inodes."""

from collections.abc import Iterable

from threefs.wire import meta_pb2 as pb

#: (bytes, inodes)
Cost = tuple[int, int]
_NOTHING: Cost = (0, 0)


class UsageCount:
    """One count of all inodes, compared with the sums that were `kept` when it started."""

    def __init__(self, kept: Iterable[pb.FsckUsage]) -> None:
        self._kept = {usage.account: usage for usage in kept}
        self._counted: dict[bytes, Cost] = {}

    def add(self, costs: Iterable[pb.FsckUsage]) -> None:
        """Add the usage of a page of inodes."""
        for cost in costs:
            size, inodes = self._counted.get(cost.account, _NOTHING)
            self._counted[cost.account] = size + cost.bytes, inodes + cost.inodes

    def differences(self) -> dict[bytes, Cost]:
        """By account: the counted usage minus the kept sum, where they differ."""
        found = {}
        for account in self._kept.keys() | self._counted.keys():
            kept = self._kept.get(account, pb.FsckUsage())
            size, inodes = self._counted.get(account, _NOTHING)
            if (size, inodes) != (kept.bytes, kept.inodes):
                found[account] = size - kept.bytes, inodes - kept.inodes
        return found

    def subjects(self, accounts: Iterable[bytes]) -> list[pb.FsckSubject]:
        """Requests to the service to check these accounts once more, in a transaction."""
        found = []
        for account in accounts:
            size, inodes = self._counted.get(account, _NOTHING)
            counted = pb.FsckUsage(account=account, bytes=size, inodes=inodes)
            found.append(pb.FsckSubject(kept=self._kept.get(account, pb.FsckUsage(account=account)), counted=counted))
        return found
