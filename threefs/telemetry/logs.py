"""Structured logs: one JSON object a line on standard error."""

import logging
import sys

import structlog
from structlog.typing import EventDict, WrappedLogger

from threefs.errors import InvalidSettings

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}

#: Of the whole process: context variables would not reach tasks that run already.
_identity: dict[str, str | int] = {}


def configure(program: str, level: str = "info") -> None:
    """Set up logging of this process. Secrets stay out because settings and identities do not print them."""
    if level not in LEVELS:
        raise InvalidSettings(f"log_level must be one of {', '.join(LEVELS)}, not {level!r}")
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            _with_identity,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    identify(program=program)


def identify(**names: str | int) -> None:
    """Add `names` to every line that this process logs from now on."""
    _identity.update(names)


def _with_identity(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    return {**_identity, **event}
