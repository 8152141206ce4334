"""A file tree of dictionaries, as a model of what the meta service must do."""

from typing import Union

from threefs.errors import (
    AlreadyExists,
    InvalidArgument,
    IsADirectory,
    NotADirectory,
    NotEmpty,
    NotFound,
    PermissionDenied,
)

Node = Union["Directory", "File"]


class Directory(dict[str, Node]):
    pass


class File:
    def __init__(self) -> None:
        self.names = 1


class Model:
    def __init__(self) -> None:
        self.root = Directory()
        self.lags = False  # a tree was removed with files that have other names: their count falls as it is drained

    def shown(self) -> dict[str, object]:
        """Directories as dictionaries, files as their number of names."""
        return _shown(self.root)

    def inodes(self) -> int:
        """Distinct files and directories, with the root."""
        return len({id(node) for node in _all(self.root)})

    def _parent(self, path: str) -> tuple[Directory, str]:
        *above, name = path.strip("/").split("/")
        directory = self.root
        for part in above:
            if part not in directory:
                raise NotFound
            below = directory[part]
            if not isinstance(below, Directory):
                raise NotADirectory
            directory = below
        return directory, name

    def _get(self, path: str) -> Node:
        directory, name = self._parent(path)
        if name not in directory:
            raise NotFound
        return directory[name]

    def create(self, path: str, exclusive: bool, parents: bool) -> None:
        if parents:
            self._make_parents(path)
        directory, name = self._parent(path)
        if name in directory:
            if exclusive:
                raise AlreadyExists
            if isinstance(directory[name], Directory):
                raise IsADirectory
            return
        directory[name] = File()

    def mkdir(self, path: str, parents: bool) -> None:
        if parents:
            self._make_parents(path)
        directory, name = self._parent(path)
        if name in directory:
            if parents and isinstance(directory[name], Directory):
                return
            raise AlreadyExists
        directory[name] = Directory()

    def _make_parents(self, path: str) -> None:
        parts = path.strip("/").split("/")
        for depth in range(1, len(parts)):
            try:
                self.mkdir("/".join(parts[:depth]), False)
            except AlreadyExists:
                continue

    def remove(self, path: str, recursive: bool) -> None:
        directory, name = self._parent(path)
        if name not in directory:
            raise NotFound
        node = directory[name]
        if isinstance(node, Directory):
            if node and not recursive:
                raise NotEmpty
            self.lags |= _forget(node)
        else:
            node.names -= 1
        del directory[name]

    def rename(self, source: str, target: str, no_replace: bool) -> None:
        node = self._get(source)
        into, name = self._parent(target)
        if isinstance(node, Directory) and any(into is inside for inside in _all(node)):
            raise InvalidArgument
        if name in into:
            old = into[name]
            if no_replace:
                raise AlreadyExists
            if old is node:
                return
            if isinstance(node, Directory) and not isinstance(old, Directory):
                raise NotADirectory
            if isinstance(old, Directory):
                if not isinstance(node, Directory):
                    raise IsADirectory
                if old:
                    raise NotEmpty
            else:
                old.names -= 1
        outof, was = self._parent(source)
        del outof[was]
        into[name] = node

    def link(self, source: str, target: str) -> None:
        node = self._get(source)
        if isinstance(node, Directory):
            raise PermissionDenied
        into, name = self._parent(target)
        if name in into:
            raise AlreadyExists
        node.names += 1
        into[name] = node


def _shown(directory: Directory) -> dict[str, object]:
    return {name: _shown(node) if isinstance(node, Directory) else node.names for name, node in directory.items()}


def _all(node: Node) -> list[Node]:
    found = [node]
    if isinstance(node, Directory):
        for below in node.values():
            found += _all(below)
    return found


def _forget(directory: Directory) -> bool:
    """True if a file in it has a name elsewhere."""
    elsewhere = False
    for node in directory.values():
        if isinstance(node, Directory):
            elsewhere |= _forget(node)
        else:
            node.names -= 1
            elsewhere |= node.names > 0
    return elsewhere
