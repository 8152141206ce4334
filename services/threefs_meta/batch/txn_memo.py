"""Results and changes of earlier steps of one transaction, for the later steps. A step is one change of a batch.

The memo holds directories that the transaction has resolved, for one actor. They are forgotten when a step changes
anything except files, so the memo always agrees with a new resolution. The times of directories are written once, after
the last step.
"""

from dataclasses import dataclass, field

from threefs.wire import meta_pb2 as pb


@dataclass(slots=True)
class TxnMemo:
    directory_numbers: dict[tuple[int, bytes], int] = field(
        default_factory=dict
    )  # (base, path) -> directory it may search
    directories: dict[int, pb.Inode] = field(default_factory=dict)  # as stored, not to be changed
    changed: dict[int, int] = field(default_factory=dict)  # directories: when an entry was last changed
    step_changes: dict[int, int | None] = field(default_factory=dict)  # the same of the present step; None: removed
    lease: int = 0  # the number of the client's lease, the same for all steps; 0: not looked up yet

    def invalidate_paths(self) -> None:
        self.directory_numbers.clear()
        self.directories.clear()

    def commit_step(self) -> None:
        for directory, now_ns in self.step_changes.items():
            if now_ns is not None:
                self.changed[directory] = now_ns
            else:
                self.changed.pop(directory, None)
        self.step_changes.clear()

    def rollback_step(self) -> None:
        """Forget the step, and everything found: the step itself may have made it."""
        self.step_changes.clear()
        self.lease = 0
        self.invalidate_paths()
