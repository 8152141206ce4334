"""The result of a check of a cluster or a machine: its severity, and the reasons for it."""

import enum
from collections.abc import Iterable
from dataclasses import dataclass


class Severity(enum.IntEnum):
    """The values are the exit codes of the commands."""

    OK = 0
    WARN = 1  # nothing has stopped, but somebody has to act, or fewer failures than planned can be borne
    ERR = 2  # data cannot be read or written now, or is lost


@dataclass(frozen=True, slots=True)
class Reason:
    """One thing that is not as it should be."""

    code: str  # for programs: it stays the same from release to release
    severity: Severity
    summary: str  # what is so, of which node, target or disk, and the bound that it passes
    advice: str  # what to do


def severity(reasons: Iterable[Reason]) -> Severity:
    """That of the worst reason; OK without any."""
    return max((reason.severity for reason in reasons), default=Severity.OK)
