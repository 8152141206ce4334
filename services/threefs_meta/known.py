"""Directories that earlier steps of one transaction have walked to, so that the later ones need not.

It holds what the transaction has read, for one actor, and is emptied when a step changes anything but files: what it
says is what a walk would find.
"""

from dataclasses import dataclass, field

from threefs.wire import meta_pb2 as pb


@dataclass(slots=True)
class Known:
    places: dict[tuple[int, bytes], int] = field(default_factory=dict)  # (base, path) -> directory it may search
    directories: dict[int, pb.Inode] = field(default_factory=dict)  # as stored, not to be changed

    def forget(self) -> None:
        self.places.clear()
        self.directories.clear()
