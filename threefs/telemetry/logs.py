"""Structured logs: one JSON object a line on standard error."""

import atexit
import contextlib
import logging
import sys
from collections.abc import Callable
from typing import Any

import structlog
from structlog.typing import EventDict, WrappedLogger

from threefs.env import unwritten_output
from threefs.errors import InvalidSettings

DEFAULT_LEVEL = "info"
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}

#: The least important lines that are logged. Loggers are made once, so each call looks here.
_least = logging.INFO

_Filtering = structlog.make_filtering_bound_logger(logging.DEBUG)


class _AdjustableLogger(_Filtering):  # type: ignore[misc,valid-type]
    """A logger whose level can change. Errors are always logged."""

    def debug(self, event: str, *args: Any, **names: Any) -> None:
        if _least <= logging.DEBUG:
            super().debug(event, *args, **names)

    def info(self, event: str, *args: Any, **names: Any) -> None:
        if _least <= logging.INFO:
            super().info(event, *args, **names)

    def warning(self, event: str, *args: Any, **names: Any) -> None:
        if _least <= logging.WARNING:
            super().warning(event, *args, **names)


class _LineLogger(structlog.PrintLogger):
    """Prints each line, unless that fails: nobody who logs expects an error, and it would end the task, or the whole
    process. The disk of the log may be full, or the reader of a pipe may be gone."""

    def msg(self, message: str) -> None:
        with contextlib.suppress(OSError):
            super().msg(message)

    log = debug = info = warn = warning = error = critical = msg


#: Of the whole process: context variables would not reach tasks that run already.
_identity: dict[str, str | int | Callable[[], int]] = {}


def set_level(level: str) -> None:
    """Log lines of this level and more important ones from now on. Raises InvalidSettings."""
    global _least
    if level not in LEVELS:
        raise InvalidSettings(f"log_level must be one of {', '.join(LEVELS)}, not {level!r}")
    _least = LEVELS[level]


def configure(program: str, level: str = DEFAULT_LEVEL) -> None:
    """Set up logging of this process. Secrets stay out because settings and identities do not print them."""
    set_level(level)
    atexit.register(unwritten_output.give_up, sys.stderr)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            _with_identity,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=_AdjustableLogger,
        logger_factory=lambda *_: _LineLogger(sys.stderr),
        cache_logger_on_first_use=True,
    )
    identify(program=program)


def identify(**names: str | int | Callable[[], int]) -> None:
    """Add `names` to every line that this process logs from now on. What can change is a function."""
    _identity.update(names)


def _with_identity(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    known = {name: value() if callable(value) else value for name, value in _identity.items()}
    return {**known, **event}
