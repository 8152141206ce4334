"""One of many processes that change the same small tree at once.

`python -m tests.harness.namespace_mixer DIRECTORY SEED SECONDS`: DIRECTORY is a directory of a mount, or
threefs://manager/directory. It prints how often each call succeeded and failed.
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

from tests.harness.client_driver import ClientDriver, run
from tests.harness.fs_drivers import EXCHANGE, NOREPLACE, Driver, KernelDriver, outcome

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
    def __init__(self, driver: Driver, seed: int) -> None:
        self._door = driver
        self._random = random.Random(seed)
        self.results: Counter[str] = Counter()

    def _path(self) -> str:
        name = self._random.choice("abcdefgh"[:_NAMES])
        return self._random.choice(("", *(f"{directory}/" for directory in _DIRECTORIES))) + name

    def step(self) -> None:
        driver, path, other = self._door, self._path(), self._path()
        calls: dict[str, Callable[[], object]] = {
            "make_directory": lambda: driver.make_directory(path, 0o755),
            "make_file": lambda: driver.make_file(path, 0o644),
            "write": lambda: driver.write(path, b"x" * self._random.choice((0, 1, 5000, 70_000))),
            "append": lambda: driver.append(path, b"y" * 100),
            "symlink": lambda: driver.symlink("a", path),
            "link": lambda: driver.link(path, other),
            "rename": lambda: driver.rename(path, other, 0),
            "rename without replacing": lambda: driver.rename(path, other, NOREPLACE),
            "exchange": lambda: driver.rename(path, other, EXCHANGE),
            "remove_file": lambda: driver.remove_file(path),
            "remove_directory": lambda: driver.remove_directory(path),
            "remove_tree": lambda: driver.remove_tree(path),
            "chmod": lambda: driver.chmod(path, 0o700),
            "truncate": lambda: driver.truncate(path, 10),
            "names": lambda: driver.names(path),
            "stat": lambda: driver.stat(path, False),
        }
        weights = [2 if "rename" in name or "link" in name or "make" in name else 1 for name in calls]
        weights[list(calls).index("remove_tree")] = 0 if self._random.random() < 0.8 else 1
        (name,) = self._random.choices(list(calls), weights)
        found = outcome(calls[name])
        assert not found.error or found.error in EXPECTED, f"{name} {path} {other}: {found.error}"
        self.results[f"{name} {found.error or 'done'}"] += 1


def door_to(place: str) -> Driver:
    if not place.startswith("threefs://"):
        return KernelDriver(Path(place))
    address, _, directory = place.removeprefix("threefs://").partition("/")
    return ClientDriver(run(connect_async(f"threefs://{address}", timeout_s=60.0)), f"/{directory}")


def main(place: str, seed: str, seconds: str) -> None:
    mixer = Mixer(door_to(place), int(seed))
    end = time.monotonic() + float(seconds)
    while time.monotonic() < end:
        mixer.step()
    print(json.dumps(mixer.results))


if __name__ == "__main__":
    main(*sys.argv[1:])
