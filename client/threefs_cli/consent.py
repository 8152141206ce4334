"""Commands ask before they do what cannot be undone."""

import sys

import click

from threefs.errors import InvalidArgument


def ask(question: str) -> None:
    """Raises click.Abort if the answer is no, InvalidArgument if nobody answers: without a terminal, --yes does."""
    try:
        agreed = click.confirm(question, err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        raise InvalidArgument("nobody answered, and nothing was changed; without a terminal give --yes") from None
    if not agreed:
        raise click.Abort
