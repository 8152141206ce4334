"""A check of a whole cluster: metadata and chunks, repeated after repairs."""

from threefs_client import AsyncFileSystem

from threefs_fsck.chunks import ChunkCheck
from threefs_fsck.findings import Report
from threefs_fsck.metadata import MetadataCheck, Progress
from threefs_fsck.removed_files import RemovedFileCheck

#: A repair may reveal a finding that the damage had hidden, such as a loop below a dangling entry.
_ROUNDS = 4


async def check(fs: AsyncFileSystem, *, repair: bool = False, progress: Progress = lambda title, rows: None) -> Report:
    """Check a whole cluster while it is in use. With `repair`, repair what is wrong and check again.

    Raises the errors of services that do not answer.
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
    metadata = MetadataCheck(link.meta, report, repair=repair, progress=progress)
    await metadata.run()
    await ChunkCheck(
        link.meta, link.peers, link.cluster, link.chunks, report, clock=link.clock, repair=repair, progress=progress
    ).run()
    await RemovedFileCheck(link.meta, link.peers, link.cluster, link.chunks, report, progress=progress).run(
        metadata.restored_ns
    )
    return report
