"""How commands print the reasons of a verdict."""

from collections.abc import Iterator, Sequence
from typing import Any

from threefs.health.verdict import Reason, severity
from threefs_cli import output


def describe(reasons: Sequence[Reason]) -> dict[str, Any]:
    """For `--json`."""
    return {
        "health": severity(reasons).name,
        "reasons": [
            {
                "code": reason.code,
                "severity": reason.severity.name,
                "summary": reason.summary,
                "advice": reason.advice,
            }
            for reason in reasons
        ],
    }


def lines(reasons: Sequence[Reason]) -> Iterator[str]:
    """For people: the worst reasons first, each with what to do."""
    for reason in sorted(reasons, key=lambda reason: -reason.severity):
        yield f"{reason.severity.name:<4}  {reason.code}: {output.printable(reason.summary)}"
        yield f"      do: {output.printable(reason.advice)}"
