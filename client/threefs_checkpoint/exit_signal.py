"""Notes the signal by which a scheduler announces that it will end the job, so that the job saves and exits."""

import signal
from collections.abc import Iterable
from types import FrameType, TracebackType


class ExitSignal:
    """`with ExitSignal() as received:` then `received()` says whether the signal has come. To be used in the main
    thread, as Python demands for signals."""

    def __init__(self, signals: Iterable[signal.Signals] = (signal.SIGTERM, signal.SIGUSR1)) -> None:
        """SIGTERM comes from most schedulers; SIGUSR1 is what Slurm sends with `--signal=USR1@60`."""
        self._signals = tuple(signals)
        self._before: dict[signal.Signals, object] = {}
        self._received = False

    def __call__(self) -> bool:
        return self._received

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._received = True

    def __enter__(self) -> "ExitSignal":
        for number in self._signals:
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
