"""The work of a read and nothing else in plain blocking Python: pread, CRC32C, send; receive, CRC32C.

    python -m benchmarks.limits.work_equal serve FILE unix|tcp NAME
    python -m benchmarks.limits.work_equal read SECONDS PIECES LENGTH DEPTH SPAN STRIDE unix|tcp ADDRESS...

The messages are those of `work_equal.c`, whose head explains them. A ratio to this program says what threefs costs
beyond the work; its ratio to the program in C says what Python costs.
"""

import json
import mmap
import os
import socket
import struct
import sys
import time
from collections.abc import Iterator

from threefs.checksums import crc32c

_HEAD = struct.Struct("=II")
_CPU = struct.Struct("=Q")
_MAX_BYTES = 8 << 20
_SOCKET_BYTES = 4 << 20


def _socket(family: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX if family == "unix" else socket.AF_INET)
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        sock.setsockopt(socket.SOL_SOCKET, option, _SOCKET_BYTES)
    return sock


def _address(family: str, name: str) -> str | tuple[str, int]:
    return f"\0{name}" if family == "unix" else ("127.0.0.1", int(name))


def _without_delay(sock: socket.socket) -> None:
    if sock.family == socket.AF_INET:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _receive(sock: socket.socket, view: memoryview) -> bool:
    """False at the end of the stream."""
    done = 0
    while done < len(view):
        count = sock.recv_into(view[done:])
        if not count:
            return False
        done += count
    return True


def _pieces(view: memoryview, count: int, length: int) -> Iterator[memoryview]:
    for at in range(0, count * length, length):
        yield view[at : at + length]


def serve(path: str, family: str, name: str) -> None:
    """One connection."""
    file = os.open(path, os.O_RDONLY)
    listener = _socket(family)
    listener.bind(_address(family, name))
    listener.listen(1)
    print(name if family == "unix" else listener.getsockname()[1], flush=True)
    sock, _ = listener.accept()
    _without_delay(sock)
    buffer = memoryview(mmap.mmap(-1, _MAX_BYTES))
    head = memoryview(bytearray(_HEAD.size))
    before = time.process_time()
    while _receive(sock, head):
        count, length = _HEAD.unpack(head)
        if not count:
            break
        asked = memoryview(bytearray(8 * count))
        if not _receive(sock, asked):
            break
        crcs = []
        for piece, offset in zip(_pieces(buffer, count, length), asked.cast("Q"), strict=True):
            if os.preadv(file, [piece], offset) != length:
                raise OSError(f"{path} ends before offset {offset + length}")
            crcs.append(crc32c(piece))
        sock.sendall(struct.pack(f"={count}I", *crcs))
        sock.sendall(buffer[: count * length])
    sock.sendall(_CPU.pack(int((time.process_time() - before) * 1e6)))


class _Load:
    """Requests for pieces at a fixed distance, round a file of `span` bytes."""

    def __init__(self, pieces: int, length: int, span: int, stride: int) -> None:
        self.pieces, self.length = pieces, length
        self._span, self._stride, self._next = span, stride, 0
        self._crcs = memoryview(bytearray(4 * pieces))
        self._buffer = memoryview(mmap.mmap(-1, _MAX_BYTES))

    def ask(self, sock: socket.socket) -> None:
        offsets = [number * self._stride % self._span for number in range(self._next, self._next + self.pieces)]
        self._next += self.pieces
        sock.sendall(_HEAD.pack(self.pieces, self.length) + struct.pack(f"={self.pieces}Q", *offsets))

    def take(self, sock: socket.socket) -> int:
        """The number of wrong pieces."""
        view = self._buffer[: self.pieces * self.length]
        if not (_receive(sock, self._crcs) and _receive(sock, view)):
            raise ConnectionError("the server has closed the connection")
        pieces = _pieces(view, self.pieces, self.length)
        return sum(crc32c(piece) != crc for piece, crc in zip(pieces, self._crcs.cast("I"), strict=True))


def read(seconds: float, load: _Load, depth: int, family: str, names: list[str]) -> dict[str, float]:
    socks = []
    for name in names:
        sock = _socket(family)
        sock.connect(_address(family, name))
        _without_delay(sock)
        socks.append(sock)
    wrong = answers = 0
    before, begin = time.process_time(), time.monotonic()
    for _ in range(depth):
        for sock in socks:
            load.ask(sock)
    last = begin
    while last < begin + seconds:
        for sock in socks:
            wrong += load.take(sock)
            load.ask(sock)
        answers += len(socks)
        last = time.monotonic()
    cpu_s = time.process_time() - before
    answer = memoryview(bytearray(_CPU.size))
    for sock in socks:
        wrong += sum(load.take(sock) for _ in range(depth))
        sock.sendall(_HEAD.pack(0, 0))
        if not _receive(sock, answer):
            raise ConnectionError("the server has closed the connection")
        cpu_s += _CPU.unpack(answer)[0] / 1e6
    pieces = answers * load.pieces
    return {"pieces": pieces, "bytes": pieces * load.length, "seconds": last - begin, "cpu_s": cpu_s, "wrong": wrong}


def main(words: list[str]) -> None:
    if words[:1] == ["serve"] and len(words) == 4:
        serve(*words[1:])
    elif words[:1] == ["read"] and len(words) > 8:
        pieces, length, depth, span, stride = map(int, words[2:7])
        print(json.dumps(read(float(words[1]), _Load(pieces, length, span, stride), depth, words[7], words[8:])))
    else:
        sys.exit("the head of the source says how it is called")


if __name__ == "__main__":
    main(sys.argv[1:])
