"""The findings of a check, and the exit code that follows from them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from threefs.wire import meta_pb2 as pb

#: As of fsck(8).
CLEAN, CORRECTED, UNCORRECTED = 0, 1, 4


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, confirmed by a second check."""

    kind: str  # "orphan", "dangling_entry", "orphan_chunk" ...
    detail: str  # a sentence for people
    inode: int = 0  # the inode concerned; 0: none
    parent: int = 0  # of an entry: its directory
    name: bytes = b""
    repaired: bool = False


@dataclass(slots=True)
class Report:
    """The result of a check. After a repair, `findings` has what was wrong before it."""

    findings: list[Finding] = field(default_factory=list)
    entries: int = 0  # number of entries checked
    inodes: int = 0
    chunks: int = 0  # each counted once, whatever the number of replicas
    complete: bool = True  # False: there are more findings than one run reports
    degraded_chains: list[int] = field(default_factory=list)  # fewer targets serve than belong to them

    @property
    def kinds(self) -> Counter[str]:
        return Counter(finding.kind for finding in self.findings)

    @property
    def exit_code(self) -> int:
        if not self.findings and self.complete:
            return CLEAN
        return CORRECTED if self.complete and all(finding.repaired for finding in self.findings) else UNCORRECTED


def of_wire(found: Sequence[pb.FsckFinding]) -> list[Finding]:
    return [
        Finding(pb.FsckKind.Name(one.kind).lower(), one.detail, one.inode, one.parent, one.name, one.repaired)
        for one in found
    ]
