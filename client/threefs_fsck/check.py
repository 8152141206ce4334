"""A whole check."""

from threefs_client import AsyncFileSystem

from threefs_fsck.chunks import ChunkCheck
from threefs_fsck.findings import Report
from threefs_fsck.metadata import MetadataCheck, Progress

#: Repairs may bring to light what they had hidden, such as a loop below an entry that led nowhere.
_ROUNDS = 4


async def check(fs: AsyncFileSystem, *, repair: bool = False, progress: Progress = lambda title, rows: None) -> Report:
    """Look at all of a cluster, while it is in use. With `repair`, mend what is wrong, and look again.

    Raises what the services raise when they cannot be asked.
    """
    report = await _check_once(fs, repair, progress)
    for _ in range(_ROUNDS):
        if not repair or not any(finding.repaired for finding in report.findings):
            break
        again = await _check_once(fs, repair, progress)
        report.findings = [one for one in report.findings if one.repaired] + again.findings
        report.complete = again.complete
        if not any(finding.repaired for finding in again.findings):
            break
    return report


async def _check_once(fs: AsyncFileSystem, repair: bool, progress: Progress) -> Report:
    report = Report()
    link = fs.context
    await MetadataCheck(link.meta, report, repair=repair, progress=progress).run()
    await ChunkCheck(
        link.meta, link.peers, link.cluster, link.chunks, report, clock=link.clock, repair=repair, progress=progress
    ).run()
    return report
