"""Which cluster a command uses, and the connection to it."""

import functools
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click
import uvloop
from threefs_client import AsyncFileSystem, addresses, connect_async

from threefs.cluster.manager_client import FramedManagerClient, ManagerClient
from threefs.errors import NotFound
from threefs_cli import cluster_file
from threefs_cli.cluster_file import ClusterFile
from threefs_cli.option_types import json_option

ADDRESS_VARIABLE = "THREEFS_ADDRESS"
#: Short, because a person waits; long enough for a manager that is being restarted.
CONNECT_S = 3.0
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ClusterSelector:
    """The options of a command that name a cluster, and the form of its output."""

    address: str | None
    directory: Path | None
    as_json: bool
    key_file_option: Path | None = None

    def url(self) -> str:
        """Raises NotFound, which says how to name or start a cluster."""
        if self.address:
            return self.address
        if self.directory:
            return cluster_file.address_in(self.directory)
        named = os.environ.get(ADDRESS_VARIABLE, "")
        if named:
            return named
        try:
            return cluster_file.address_in(cluster_file.default_directory())
        except NotFound:
            raise NotFound(
                f"no cluster is named, and none was started here: `threefs up` starts one; "
                f"--address, --dir or ${ADDRESS_VARIABLE} names another one"
            ) from None

    def local_cluster(self) -> ClusterFile | None:
        """The record of the cluster if it is found by its directory, not by its address."""
        directory = self.local_directory()
        return None if directory is None else cluster_file.load(directory)

    def local_directory(self) -> Path | None:
        """The directory of the cluster if it is found by it, not by its address."""
        if self.address or (not self.directory and os.environ.get(ADDRESS_VARIABLE, "")):
            return None
        return self.directory or cluster_file.default_directory()

    def key_file(self) -> str:
        """The file with the key of the cluster; empty: `threefs_client.keyring` searches for it."""
        if self.key_file_option is not None:
            return str(self.key_file_option)
        if self.directory is not None and not self.address and (path := cluster_file.key_file(self.directory)).exists():
            return str(path)
        return ""

    def run(self, work: Callable[[AsyncFileSystem], Awaitable[T]]) -> T:
        """Connect, run `work` with the connection, close it; returns the result of `work`."""
        url = self.url()

        async def connected() -> T:
            async with await connect_async(url, connect_timeout_s=CONNECT_S, key_file=self.key_file()) as fs:
                return await work(fs)

        return uvloop.run(connected())


def managers(fs: AsyncFileSystem, url: str) -> ManagerClient:
    return ManagerClient([FramedManagerClient(fs.context.peers, address) for address in addresses.parse(url)])


def cluster_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add --address, --dir, --key-file and --json to a command; its first argument is a ClusterSelector."""

    @click.option("--address", metavar="URL", help="Address of the cluster: threefs://HOST:PORT.")
    @click.option("--dir", "directory", type=click.Path(path_type=Path), help="Directory of a local cluster.")
    @click.option(
        "--key-file", type=click.Path(path_type=Path), help="File with the key of the cluster, where it is not found."
    )
    @json_option
    @functools.wraps(command)
    def with_selector(
        address: str | None, directory: Path | None, key_file: Path | None, as_json: bool, **rest: Any
    ) -> None:
        if address and directory:
            raise click.UsageError("--address and --dir both name a cluster; give one of them")
        command(ClusterSelector(address, directory, as_json, key_file), **rest)

    return with_selector
