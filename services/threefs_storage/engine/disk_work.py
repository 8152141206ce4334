"""Work of one kind that waits for the disk, counted: so it can be seen that a disk has stopped answering."""


class DiskWork:
    """Use it as a context manager around what waits for the disk, and for nothing else. Parts of it may overlap."""

    __slots__ = ("ended", "waiting")

    def __init__(self) -> None:
        self.waiting = 0  # has begun, and not ended
        self.ended = 0  # also what has failed

    def __enter__(self) -> None:
        self.waiting += 1

    def __exit__(self, *_: object) -> None:
        self.waiting -= 1
        self.ended += 1
