"""Clients that read and write while a cluster changes, and compare every byte with what it has to be."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import threefs_client

PIECE_BYTES = 64 << 10
_WRITTEN_PIECES = 64
_PAUSE_S = 0.005  # of each client behind each piece: the load leaves room for the moves
_TIMEOUT_S = 120.0
_FILLED = "/filled"


@dataclass
class Seen:
    errors: list[str] = field(default_factory=list)
    reads: list[tuple[float, float]] = field(default_factory=list)  # when it ended, and how long it took
    writes: int = 0

    def p99_s(self, begin_s: float, end_s: float) -> float:
        durations = sorted(lasted for ended, lasted in self.reads if begin_s <= ended < end_s)
        return durations[min(len(durations) - 1, len(durations) * 99 // 100)]


class MixedLoad:
    """Readers of one large file, and writers with a file each."""

    def __init__(self, address: str, key_file: Path, file_bytes: int, *, readers: int = 2, writers: int = 1) -> None:
        self.seen = Seen()
        self._address, self._key_file = address, key_file
        self._pieces = file_bytes // PIECE_BYTES
        self._stopping = threading.Event()
        self._threads = [
            *(threading.Thread(target=self._guarded, args=("reader", self._read, number)) for number in range(readers)),
            *(
                threading.Thread(target=self._guarded, args=("writer", self._write, number))
                for number in range(writers)
            ),
        ]

    def start(self) -> None:
        with self._connect() as fs, fs.open(_FILLED, "wb") as file:
            for number in range(self._pieces):
                file.write(piece(number))
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Returns when each writer has read its whole file once more."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _connect(self) -> threefs_client.FileSystem:
        return threefs_client.connect(self._address, key_file=self._key_file, timeout_s=_TIMEOUT_S)

    def _guarded(self, role: str, work: Callable[[threefs_client.FileSystem, int], None], number: int) -> None:
        try:
            with self._connect() as fs:
                work(fs, number)
        except Exception as error:
            self.seen.errors.append(f"{role} {number}: {error!r}")

    def _read(self, fs: threefs_client.FileSystem, client: int) -> None:
        dice = Random(client)
        with fs.open(_FILLED, "rb") as file:
            while not self._stopping.wait(_PAUSE_S):
                number = dice.randrange(self._pieces)
                begin_s = time.monotonic()
                file.seek(number * PIECE_BYTES)
                found = file.read(PIECE_BYTES)
                end_s = time.monotonic()
                self.seen.reads.append((end_s, end_s - begin_s))
                self._compare(found, piece(number), f"{_FILLED}, piece {number}")

    def _write(self, fs: threefs_client.FileSystem, client: int) -> None:
        name, count = f"/written-{client}", 0
        content: dict[int, bytes] = {}
        with fs.open(name, "w+b") as file:
            while not self._stopping.wait(_PAUSE_S):
                number, count = count % _WRITTEN_PIECES, count + 1
                content[number] = piece(count << 20 | number)
                file.seek(number * PIECE_BYTES)
                file.write(content[number])
                file.flush()
                file.seek(number * PIECE_BYTES)
                self._compare(file.read(PIECE_BYTES), content[number], f"{name}, piece {number}")
                self.seen.writes += 1
        with fs.open(name, "rb") as file:
            for number in sorted(content):
                file.seek(number * PIECE_BYTES)
                self._compare(file.read(PIECE_BYTES), content[number], f"{name} at the end, piece {number}")

    def _compare(self, found: bytes, expected: bytes, what: str) -> None:
        if found != expected:
            self.seen.errors.append(f"{what} has other bytes than were written")


def piece(number: int) -> bytes:
    """Each number has its own bytes."""
    return number.to_bytes(8, "big") * (PIECE_BYTES // 8)
