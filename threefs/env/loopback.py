"""The transfer rate of this machine's loopback, by plain blocking sockets with one sender and one receiver.

Benchmarks compare their transfer rates with it.
"""

import multiprocessing
import os
import socket
import time

_PIECE_BYTES = 1 << 20


def raw_rate(*, unix: bool, seconds: float) -> float:
    """Bytes per second from one process to another, in pieces of 1 MiB, over TCP or a UNIX socket."""
    family = socket.AF_UNIX if unix else socket.AF_INET
    listener = socket.socket(family)
    listener.bind(f"\0threefs.loopback.{os.getpid()}" if unix else ("127.0.0.1", 0))
    listener.listen(1)
    sender = multiprocessing.get_context("spawn").Process(target=_send, args=(family, listener.getsockname()))
    sender.start()
    try:
        stream, _ = listener.accept()
        with stream:
            _receive(stream, 0.1)  # warm-up
            return _receive(stream, seconds)
    finally:
        listener.close()
        sender.join(10)
        sender.kill()


def _receive(stream: socket.socket, seconds: float) -> float:
    buffer = bytearray(_PIECE_BYTES)
    received = 0
    begin = time.monotonic()
    end = begin + seconds
    while (now := time.monotonic()) < end:
        count = stream.recv_into(buffer)
        if not count:
            raise ConnectionError("the sender has gone")
        received += count
    return received / (now - begin)


def _send(family: int, address: object) -> None:
    piece = bytearray(os.urandom(_PIECE_BYTES))
    with socket.socket(family) as stream:
        stream.connect(address)  # type: ignore[arg-type]
        try:
            while True:
                stream.sendall(piece)
        except OSError:  # the receiver has closed the connection
            return
