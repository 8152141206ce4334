"""One connection to the cluster for all tasks of a process."""

from typing import Any

from threefs_data.filesystem_protocol import TreeFileSystem

#: By what a pickled file system contains. Few: the processes of one job have one.
_connected: dict[str, TreeFileSystem] = {}


class ProcessFileSystem:
    """A file system that is handed to tasks. In another process all tasks get the same object, so they share its
    connection; in this one it is the caller's."""

    def __init__(self, fs: TreeFileSystem) -> None:
        self.fs = fs

    def __reduce__(self) -> tuple[Any, ...]:
        return _of_process, (self.fs,)


def _of_process(fs: TreeFileSystem) -> ProcessFileSystem:
    state: Any = fs
    key = f"{type(fs).__qualname__} {state.__getstate__()!r}"
    return ProcessFileSystem(_connected.setdefault(key, fs))
