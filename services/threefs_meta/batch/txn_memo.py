"""What earlier steps of one transaction have found and done, so that later ones need not.

Directories that were walked to are what the transaction has read, for one actor; they are forgotten when a step changes
anything but files, so a step finds here what a walk would find. The times of directories are written once, after the
last step.
"""

from dataclasses import dataclass, field

from threefs.wire import meta_pb2 as pb


@dataclass(slots=True)
class TxnMemo:
    places: dict[tuple[int, bytes], int] = field(default_factory=dict)  # (base, path) -> directory it may search
    directories: dict[int, pb.Inode] = field(default_factory=dict)  # as stored, not to be changed
    touched: dict[int, int] = field(default_factory=dict)  # directories: when an entry was last changed
    touching: dict[int, int | None] = field(default_factory=dict)  # by the step that is being made; None: removed
    lease: int = 0  # the number of the client's, who is the same for all steps; 0: nobody has asked for it

    def forget(self) -> None:
        self.places.clear()
        self.directories.clear()

    def step_made(self) -> None:
        for directory, now_ns in self.touching.items():
            if now_ns is not None:
                self.touched[directory] = now_ns
            else:
                self.touched.pop(directory, None)
        self.touching.clear()

    def step_failed(self) -> None:
        """Nothing of it is left, and what it has found may have been its own."""
        self.touching.clear()
        self.lease = 0
        self.forget()
