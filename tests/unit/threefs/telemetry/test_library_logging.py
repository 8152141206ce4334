import logging
from collections.abc import Iterator

import pytest
import structlog
from structlog.testing import capture_logs

from threefs.telemetry.library_logging import LibraryLogger


@pytest.fixture(autouse=True)
def unconfigured() -> Iterator[None]:
    before, was_configured = structlog.get_config(), structlog.is_configured()
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()
    if was_configured:
        structlog.configure(**before)


def test_nothing_reaches_the_standard_output_of_a_users_program(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    log = LibraryLogger("threefs.x")
    with caplog.at_level(logging.INFO):
        log.info("away", address="a:1")
        log.warning("lost", lease=3)
        try:
            raise KeyError("k")
        except KeyError:
            log.exception("broken")
    assert capsys.readouterr().out == ""
    assert "away {'address': 'a:1'}" in caplog.text
    assert "lost {'lease': 3}" in caplog.text
    assert "KeyError" in caplog.text


def test_in_a_service_it_is_structured() -> None:
    structlog.configure()
    with capture_logs() as logs:
        LibraryLogger("threefs.x").info("away", address="a:1")
        LibraryLogger("threefs.x").warning("lost")
        LibraryLogger("threefs.x").exception("broken")
    levels = [(entry["event"], entry["log_level"]) for entry in logs]
    assert levels == [("away", "info"), ("lost", "warning"), ("broken", "error")]
    assert logs[0]["address"] == "a:1"
