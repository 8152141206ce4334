"""When a checkpoint is due: by time or by steps. Pure."""

from dataclasses import dataclass

from threefs.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class Every:
    """An interval between checkpoints, of seconds or of steps. With both, whichever ends first."""

    seconds: float = 0.0
    steps: int = 0

    def __post_init__(self) -> None:
        if self.seconds < 0 or self.steps < 0 or not (self.seconds or self.steps):
            raise InvalidArgument(
                f"an interval has a number of seconds or of steps above 0, not {self.seconds} s and {self.steps} steps"
            )

    def is_due(self, step: int, last_step: int, now_s: float, last_s: float) -> bool:
        """Whether the interval has ended since the last checkpoint, or since training began."""
        by_steps = bool(self.steps) and step // self.steps > last_step // self.steps
        return by_steps or (bool(self.seconds) and now_s - last_s >= self.seconds)


#: A save stalls training for the host copy alone, so it may come often.
DEFAULT = Every(seconds=300.0)
