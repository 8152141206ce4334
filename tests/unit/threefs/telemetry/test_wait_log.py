import structlog
from structlog.testing import capture_logs

from threefs.errors import Unavailable
from threefs.telemetry.library_logging import LibraryLogger
from threefs.telemetry.wait_log import WaitLog


def test_a_wait_is_said_once_and_so_is_its_end() -> None:
    configured = structlog.is_configured()
    structlog.configure()
    try:
        log = WaitLog(LibraryLogger("test"), waits="it waits", goes_on="it goes on", interval_s=30.0)
        with capture_logs() as logs:
            log.answered()
            log.failed(Unavailable("nobody listens"), began=0.0, now=0.5, timeout_s=60.0)
            assert not logs, "calls are often repeated once"
            for now in (1.5, 2.0, 40.0):
                log.failed(Unavailable("nobody listens"), began=0.0, now=now, timeout_s=60.0)
            assert [(each["event"], each["error"], each["timeout_s"]) for each in logs] == [
                ("it waits", "nobody listens", 60.0)
            ]
            log.answered(address="a")
            log.answered()
            assert logs[1:] == [{"event": "it goes on", "log_level": "warning", "address": "a"}]
            log.failed(Unavailable(), began=10.0, now=20.0, timeout_s=60.0)
            assert len(logs) == 2, "chains that fail one after the other say so together"
            log.failed(Unavailable(), began=10.0, now=31.5, timeout_s=60.0)
            assert len(logs) == 3
            log.attempted(None, began=31.0, now=31.5, deadline=90.0)
            assert len(logs) == 3, "this call has not waited"
            log.attempted(None, began=30.0, now=31.5, deadline=90.0)
            assert len(logs) == 4 and logs[3]["event"] == "it goes on"
    finally:
        if not configured:
            structlog.reset_defaults()
