"""One of many processes that change the same small tree at once: `python -m tests.harness.mixer DOOR SEED SECONDS`.

DOOR is a directory of a mount, or threefs://manager/directory. It prints how often each call succeeded and failed.
"""

import errno
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from threefs_client import connect_async

from tests.harness.client_door import ClientDoor, run
from tests.harness.doors import EXCHANGE, NOREPLACE, Door, KernelDoor, outcome

#: What calls may answer when others change the tree meanwhile.
EXPECTED = {
    errno.errorcode[number]
    for number in (
        errno.ENOENT,
        errno.EEXIST,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.ENOTEMPTY,
        errno.EINVAL,
        errno.EPERM,
        errno.ELOOP,
        errno.ESTALE,
    )
}
_DIRECTORIES = ("a", "b", "c", "a/d", "b/d", "a/d/e")
_NAMES = 5


class Mixer:
    def __init__(self, door: Door, seed: int) -> None:
        self._door = door
        self._random = random.Random(seed)
        self.results: Counter[str] = Counter()

    def _path(self) -> str:
        name = self._random.choice("abcdefgh"[:_NAMES])
        return self._random.choice(("", *(f"{directory}/" for directory in _DIRECTORIES))) + name

    def step(self) -> None:
        door, path, other = self._door, self._path(), self._path()
        calls: dict[str, Callable[[], object]] = {
            "make_directory": lambda: door.make_directory(path, 0o755),
            "make_file": lambda: door.make_file(path, 0o644),
            "write": lambda: door.write(path, b"x" * self._random.choice((0, 1, 5000, 70_000))),
            "append": lambda: door.append(path, b"y" * 100),
            "symlink": lambda: door.symlink("a", path),
            "link": lambda: door.link(path, other),
            "rename": lambda: door.rename(path, other, 0),
            "rename without replacing": lambda: door.rename(path, other, NOREPLACE),
            "exchange": lambda: door.rename(path, other, EXCHANGE),
            "remove_file": lambda: door.remove_file(path),
            "remove_directory": lambda: door.remove_directory(path),
            "remove_tree": lambda: door.remove_tree(path),
            "chmod": lambda: door.chmod(path, 0o700),
            "truncate": lambda: door.truncate(path, 10),
            "names": lambda: door.names(path),
            "stat": lambda: door.stat(path, False),
        }
        weights = [2 if "rename" in name or "link" in name or "make" in name else 1 for name in calls]
        weights[list(calls).index("remove_tree")] = 0 if self._random.random() < 0.8 else 1
        (name,) = self._random.choices(list(calls), weights)
        found = outcome(calls[name])
        assert not found.error or found.error in EXPECTED, f"{name} {path} {other}: {found.error}"
        self.results[f"{name} {found.error or 'done'}"] += 1


def door_to(place: str) -> Door:
    if not place.startswith("threefs://"):
        return KernelDoor(Path(place))
    address, _, directory = place.removeprefix("threefs://").partition("/")
    return ClientDoor(run(connect_async(f"threefs://{address}", timeout_s=60.0)), f"/{directory}")


def main(place: str, seed: str, seconds: str) -> None:
    mixer = Mixer(door_to(place), int(seed))
    end = time.monotonic() + float(seconds)
    while time.monotonic() < end:
        mixer.step()
    print(json.dumps(mixer.results))


if __name__ == "__main__":
    main(*sys.argv[1:])
