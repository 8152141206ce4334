"""Clients that read and write files all the time, and how long they waited when something was killed."""

import threading
import time
from types import TracebackType

import threefs_client

_FILES = 8
_BYTES = 100_000
_WAIT_S = 120.0
_PAUSE_S = 0.05  # between two turns of a client: the cores are there for what is killed and started


class PacedLoad:
    """Each client replaces, reads and removes files in a directory of its own. No call may fail."""

    def __init__(self, address: str, clients: int = 3, **options: float) -> None:
        self.errors: list[BaseException] = []
        self._stop = threading.Event()
        self._address = address
        self._options = {"timeout_s": 90.0, "connect_timeout_s": 60.0} | options
        self._newest = [(0.0, 0.0)] * clients  # when the newest call was begun, and when it had ended
        self._threads = [threading.Thread(target=self._work, args=(number,)) for number in range(clients)]

    def _work(self, client: int) -> None:
        home = f"/paced-{client}"
        try:
            with threefs_client.connect(self._address, **self._options) as fs:
                fs.mkdir(home, parents=True)
                turn = 0
                while not self._stop.wait(_PAUSE_S):
                    begun = time.monotonic()
                    path, content = f"{home}/{turn % _FILES}", bytes([turn % 256]) * _BYTES
                    fs.write_file(path, content)
                    assert fs.read_file(path) == content
                    if turn % 5 == 4:
                        fs.remove(path)
                    self._newest[client] = (begun, time.monotonic())
                    turn += 1
        except BaseException as error:
            self.errors.append(error)

    def back_after(self, moment: float) -> float:
        """Wait until every client has ended a turn that it began after `moment`; how long after it that was."""
        deadline = time.monotonic() + _WAIT_S
        while not all(begun >= moment for begun, _ in self._newest):
            assert not self.errors, self.errors
            assert time.monotonic() < deadline, f"the load stands still: {self._newest}"
            time.sleep(0.01)
        assert not self.errors, self.errors
        return max(ended for _, ended in self._newest) - moment

    def __enter__(self) -> "PacedLoad":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
