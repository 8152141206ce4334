"""Logs of code that also runs inside programs of users: a client must not write to their standard output."""

import logging
from typing import Any

import structlog


class LibraryLogger:
    """Structured where structlog was configured (in our services, or by the user), else the standard `logging`."""

    def __init__(self, name: str) -> None:
        self._standard = logging.getLogger(name)

    def debug(self, event: str, **fields: Any) -> None:
        if structlog.is_configured():
            structlog.get_logger().debug(event, **fields)
        else:
            self._standard.debug("%s %s", event, fields)

    def info(self, event: str, **fields: Any) -> None:
        if structlog.is_configured():
            structlog.get_logger().info(event, **fields)
        else:
            self._standard.info("%s %s", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        if structlog.is_configured():
            structlog.get_logger().warning(event, **fields)
        else:
            self._standard.warning("%s %s", event, fields)

    def error(self, event: str, **fields: Any) -> None:
        if structlog.is_configured():
            structlog.get_logger().error(event, **fields)
        else:
            self._standard.error("%s %s", event, fields)

    def exception(self, event: str, **fields: Any) -> None:
        """With the exception that is being handled."""
        if structlog.is_configured():
            structlog.get_logger().exception(event, **fields)
        else:
            self._standard.exception("%s %s", event, fields)
