"""Bytes of a file that the disk does not give any more."""

import errno
import os
from pathlib import Path

import pytest


def cannot_be_read(
    monkeypatch: pytest.MonkeyPatch, file: Path, begin: int, end: int, number: int = errno.EIO, times: int = 1 << 30
) -> None:
    """By `os.pread`. As of the kernel, a read that meets them gives what lies before them, and the next one fails; the
    disk recovers when that many have failed."""
    real, left = os.pread, times

    def pread(descriptor: int, length: int, offset: int) -> bytes:
        nonlocal left
        if left and offset < end and offset + length > begin and os.path.samestat(os.fstat(descriptor), file.stat()):
            if offset >= begin:
                left -= 1
                raise OSError(number, os.strerror(number))
            length = begin - offset
        return real(descriptor, length, offset)

    monkeypatch.setattr(os, "pread", pread)
