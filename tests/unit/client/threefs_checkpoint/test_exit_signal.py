import os
import signal

from threefs_checkpoint.exit_signal import ExitSignal


def test_a_signal_is_noted_and_the_handlers_before_come_back() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1)]
    for number in (signal.SIGTERM, signal.SIGUSR1):
        with ExitSignal() as received:
            assert not received()
            os.kill(os.getpid(), number)
            assert received()
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1)] == before
