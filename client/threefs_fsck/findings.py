"""What a check finds, and what the exit code says of it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from threefs.wire import meta_pb2 as pb

#: As of fsck(8).
CLEAN, CORRECTED, UNCORRECTED = 0, 1, 4


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong. It was looked at twice."""

    kind: str  # "orphan", "dangling_entry", "orphan_chunk" ...
    detail: str  # for people
    inode: int = 0  # that it is about, as far as there is one
    parent: int = 0  # of an entry
    name: bytes = b""
    repaired: bool = False


@dataclass(slots=True)
class Report:
    """All of a check. `findings` of a repaired cluster are those of before the repair."""

    findings: list[Finding] = field(default_factory=list)
    entries: int = 0  # looked at
    inodes: int = 0
    chunks: int = 0  # one replica each
    complete: bool = True  # False: there was more wrong than is told in one run

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
