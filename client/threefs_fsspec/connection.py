"""A cluster as a file system of fsspec: its name, its connection, and the event loop.

All work runs on the loop thread of the client library, with one connection per process and cluster. So coroutines of
this file system may be awaited on any event loop, and a forked child makes a loop and a connection of its own.
"""

import asyncio
import posixpath
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from fsspec.asyn import AsyncFileSystem as FsspecFileSystem
from fsspec.utils import stringify_path, tokenize
from threefs_cli.cluster_selector import ClusterSelector
from threefs_client import AsyncFileSystem, FileSystem, addresses, options

from threefs.env import loop_thread
from threefs.errors import InvalidArgument
from threefs_fsspec import urls

T = TypeVar("T")

#: Arguments of fsspec itself; all others are options of the connection.
_OF_FSSPEC = ("use_listings_cache", "listings_expiry_time", "max_paths")
#: Files that are copied at the same time: each takes a piece of memory (`transfer.py`).
_FILES_AT_ONCE = 32

#: The connections of this process. Equal file systems share one.
_CLIENTS: WeakValueDictionary[Any, FileSystem] = WeakValueDictionary()


def _open_client(address: str, chosen: options.Options) -> FileSystem:
    """The one that equal file systems share. A new one takes the place of one that was closed."""
    with loop_thread.process_lock():
        client = _CLIENTS.get((address, chosen))
        if client is None or client.closed:
            client = _CLIENTS[address, chosen] = FileSystem(addresses.parse(address), chosen)
    return client


class _OfUrls:
    """A function of URLs. As one of the class it takes any URL. One of a file system refuses URLs of other clusters:
    programs hand URLs to the file system at hand, and its own files would be read, replaced or removed."""

    def __init__(self, work: Callable[[str | None, Any], Any]) -> None:
        self._work = work

    def __get__(self, fs: "ConnectedFileSystem | None", owner: type) -> Callable[[Any], Any]:
        return partial(self._work, fs.address if fs is not None else None)


def _path_of(own: str | None, path: Any) -> Any:
    if isinstance(path, list):
        return [_path_of(own, one) for one in path]
    named, stripped = urls.split(stringify_path(path))
    if own and named and not urls.may_be_same(own, named):
        raise InvalidArgument(
            f"{path!r} is in the cluster {named}, and this file system is connected to {own}: open it with "
            f"fsspec.open or fsspec.url_to_fs, or with fsspec.filesystem('{urls.PROTOCOL}', address='{named}'). If "
            "both are one cluster, write its managers alike"
        )
    return stripped


def _parent_of(own: str | None, path: Any) -> str:
    return str(posixpath.dirname(_path_of(own, path)))


class ConnectedFileSystem(FsspecFileSystem):
    protocol = urls.PROTOCOL
    root_marker = "/"
    _strip_protocol = _OfUrls(_path_of)
    _parent = _OfUrls(_parent_of)

    def __init__(
        self,
        address: str | None = None,
        *,
        auto_mkdir: bool = True,
        asynchronous: bool = False,
        loop: Any = None,
        batch_size: int | None = None,
        **chosen: Any,
    ) -> None:
        """`auto_mkdir`: writing a file makes the directories above it. Nothing is connected until the first call.

        Raises InvalidArgument for a bad address or option, NotFound if no cluster is named."""
        of_fsspec = {name: chosen.pop(name) for name in _OF_FSSPEC if name in chosen}
        named = ClusterSelector(address, None, False).url()
        self.address = addresses.unparse(addresses.parse(named))
        self.auto_mkdir = auto_mkdir
        self._chosen = chosen
        self._options = options.make(**chosen)
        self._client = _open_client(self.address, self._options)
        super().__init__(
            asynchronous=asynchronous, loop=self.loop, batch_size=batch_size or _FILES_AT_ONCE, **of_fsspec
        )

    @property
    def client(self) -> FileSystem:
        """The connection. After it was closed, the next use connects again: fsspec keeps file systems and hands them to
        other parts of the program, which did not close anything."""
        if self._client.closed:
            self._client = _open_client(self.address, self._options)
        return self._client

    # ---- identity ----

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop of the client library in this process. Blocking calls wait for it."""
        return loop_thread.shared().loop

    @property
    def fsid(self) -> str:
        return self.address

    @property
    def _fs_token(self) -> str:
        """The same in all processes, for Dask."""
        public = {name: value for name, value in self._chosen.items() if name != "token"}
        return str(tokenize(type(self).__name__, self.address, self.auto_mkdir, self.asynchronous, **public))

    def __reduce__(self) -> Any:
        return _unpickled, (type(self), self._portable_options())

    def to_dict(self, *, include_password: bool = True) -> dict[str, Any]:
        told = super().to_dict(include_password=include_password)
        return {name: told[name] for name in ("cls", "protocol")} | {"args": []} | self._portable_options()

    def _portable_options(self) -> dict[str, Any]:
        """The arguments with which another process opens the same cluster. It finds the key by itself, as with pickled
        clients."""
        given = {name: value for name, value in self.storage_options.items() if name not in ("token", "loop")}
        return {**given, "address": self.address}

    def unstrip_protocol(self, name: str) -> str:
        """A URL with the address of the cluster."""
        return f"{self.address}{self._strip_protocol(name)}"

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
        address = urls.split(stringify_path(path))[0]
        return {"address": address} if address else {}

    async def _run(self, work: Callable[[AsyncFileSystem], Coroutine[Any, Any, T]]) -> T:
        """Run `work` with the connection, from whichever event loop."""

        async def connected() -> T:
            return await work(await self.client.connected())

        return await loop_thread.shared().run_for_loop(connected())


def _unpickled(cls: type[ConnectedFileSystem], chosen: dict[str, Any]) -> ConnectedFileSystem:
    return cls(**chosen)
