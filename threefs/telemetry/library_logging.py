"""Logs of code that also runs inside programs of users: a client must not write to their standard output."""

import logging
import sys
from typing import Any


def _structured() -> Any:
    """The logger of structlog if the program configured it, and so has imported it. To import it here would cost
    programs that do not use it more time than half of the client library."""
    structlog = sys.modules.get("structlog")
    is_configured = getattr(structlog, "is_configured", None)  # it is not there yet while another thread imports it
    return structlog.get_logger() if structlog is not None and is_configured is not None and is_configured() else None


class LibraryLogger:
    """Structured where structlog was configured (in our services, or by the user), else the standard `logging`."""

    def __init__(self, name: str) -> None:
        self._standard = logging.getLogger(name)

    def debug(self, event: str, **fields: Any) -> None:
        if (logger := _structured()) is not None:
            logger.debug(event, **fields)
        else:
            self._standard.debug("%s %s", event, fields)

    def info(self, event: str, **fields: Any) -> None:
        if (logger := _structured()) is not None:
            logger.info(event, **fields)
        else:
            self._standard.info("%s %s", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        if (logger := _structured()) is not None:
            logger.warning(event, **fields)
        else:
            self._standard.warning("%s %s", event, fields)

    def error(self, event: str, **fields: Any) -> None:
        if (logger := _structured()) is not None:
            logger.error(event, **fields)
        else:
            self._standard.error("%s %s", event, fields)

    def exception(self, event: str, **fields: Any) -> None:
        """With the exception that is being handled."""
        if (logger := _structured()) is not None:
            logger.exception(event, **fields)
        else:
            self._standard.exception("%s %s", event, fields)
