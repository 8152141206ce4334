"""Data directories of managers and meta services, for commands that make a lost store anew."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from threefs.cluster.registration import read_cluster_id
from threefs.env.directory_lock import check_place, owned
from threefs.errors import AlreadyExists, Unavailable, WrongCluster
from threefs.kv import engine_url
from threefs.kv.dump import KEYS_END
from threefs.kv.restore_mark import in_part

#: Files that a manager or meta service makes in its data_dir; lost+found is there if the data_dir is a disk of its own.
_SERVICE_FILES = frozenset({"kv", "lock", "format", "cluster_id", "incarnation", "routing_version", "lost+found"})


def check_data_dir(data: Path) -> None:
    """Raises AlreadyExists if the directory has files that no service makes: its name may be mistyped."""
    unexpected = (
        sorted(entry.name for entry in data.iterdir() if entry.name not in _SERVICE_FILES) if data.is_dir() else []
    )
    if unexpected:
        raise AlreadyExists(
            f"{data} holds other things (such as {unexpected[0]}); name the data_dir of the service, or an empty one"
        )


async def is_lost(data: Path, cluster_id: str) -> bool:
    if not (data / "kv" / "CURRENT").is_file():
        return True
    try:
        with owned_data_dir(data, cluster_id):
            store = await engine_url.open_engine(engine_url.url_of("", data / "kv"))
            try:
                tx = store.begin()
                return await in_part(tx) or not await tx.get_range(b"", KEYS_END, limit=1, snapshot=True)
            finally:
                await store.close()
    except Unavailable:
        return False  # it is in use


@contextlib.contextmanager
def owned_data_dir(data: Path | None, cluster_id: str) -> Iterator[None]:
    """Own the data directory of a service. Raises Unavailable if the service runs, WrongCluster, and PermissionDenied
    for a place of another user: the service, which runs as that user, could not open what is made here."""
    if data is None:
        yield
        return
    check_place(data)
    with owned(data):
        found = read_cluster_id(data / "cluster_id")
        if found not in ("", cluster_id):
            raise WrongCluster(f"{data} belongs to cluster {found}, the new store to {cluster_id}")
        yield
