"""Finds the key of a cluster.

`threefs up` remembers for its user which file has the key of the cluster at an address: a symbolic link ADDRESS in
`threefs/keys` below $XDG_DATA_HOME (~/.local/share). Services that are started by hand find it by their settings, and
their clients by $THREEFS_KEY_FILE.
"""

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from threefs import cluster_key

TOKEN_VARIABLE = "THREEFS_TOKEN"  # the key itself
FILE_VARIABLE = "THREEFS_KEY_FILE"
CLUSTER_VARIABLE = "THREEFS_DIR"  # the directory of a local cluster
DATA_VARIABLE = "XDG_DATA_HOME"
KEY_NAME = "key"  # in the directory of a local cluster


def data_home() -> Path:
    data = os.environ.get(DATA_VARIABLE, "")
    return (Path(data) if data else Path.home() / ".local" / "share") / "threefs"


def find(managers: Sequence[str], *, token: str = "", key_file: str = "") -> tuple[str, str]:
    """(the key of the cluster with these managers, where it was found); both empty when none is known.

    The arguments come first, then the environment, then what `threefs up` has remembered. Raises InvalidSettings for a
    file that is named and cannot be used.
    """
    if token:
        return token, "the option token"
    if key_file:
        return cluster_key.read(Path(key_file)), key_file
    if named := os.environ.get(TOKEN_VARIABLE, ""):
        return named, f"${TOKEN_VARIABLE}"
    if named := os.environ.get(FILE_VARIABLE, ""):
        return cluster_key.read(Path(named)), f"{named} (${FILE_VARIABLE})"
    for path in _candidates(managers):
        with contextlib.suppress(OSError):
            if path.is_file():
                return cluster_key.read(path), str(path.resolve())
    return "", ""


def _candidates(managers: Sequence[str]) -> list[Path]:
    places = []
    if directory := os.environ.get(CLUSTER_VARIABLE, ""):
        places.append(Path(directory) / KEY_NAME)
    with contextlib.suppress(RuntimeError):  # a user without a home
        ring = _links()
        for address in managers:
            places += [ring / address, ring / address.replace("localhost:", "127.0.0.1:")]
    return places


def remember(address: str, key_file: Path) -> None:
    """Let programs of this user find the key of the cluster at `address` ("host:port") in the file."""
    ring = _links()
    ring.mkdir(parents=True, exist_ok=True, mode=0o700)
    for entry in ring.iterdir():
        if not entry.exists():  # the cluster was removed
            entry.unlink(missing_ok=True)
    fresh = ring / f".{address}.{os.getpid()}"
    fresh.symlink_to(key_file.absolute())
    fresh.replace(ring / address)


def _links() -> Path:
    return data_home() / "keys"
