"""Checks a cluster that is in use (names, links, queues, chunks) and repairs what is wrong."""

from threefs_fsck.check import check
from threefs_fsck.findings import Finding, Report

__all__ = ["Finding", "Report", "check"]
