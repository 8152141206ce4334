"""The speed of a disk: sequential durable writes of 1 MiB, by fio if it is installed."""

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from threefs.env.clock import CLOCK

_MIB = 1 << 20


def durable_write_rate(directory: Path, total_bytes: int) -> tuple[float, str]:
    """(bytes per second, name of the program that measured it)."""
    with tempfile.TemporaryDirectory(dir=directory) as place:
        if shutil.which("fio"):
            return _fio(Path(place), total_bytes), "fio"
        return _plain(Path(place) / "file", total_bytes), "pwrite and fdatasync"


def _fio(place: Path, total_bytes: int) -> float:
    command = [
        "fio",
        "--name=write",
        f"--directory={place}",
        "--rw=write",
        "--bs=1M",
        "--fdatasync=1",
        f"--size={total_bytes}",
        "--output-format=json",
    ]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    return float(json.loads(done.stdout)["jobs"][0]["write"]["bw_bytes"])


def _plain(path: Path, total_bytes: int) -> float:
    piece = os.urandom(_MIB)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        begin = CLOCK.monotonic()
        for offset in range(0, total_bytes, _MIB):
            os.pwrite(fd, piece, offset)
            os.fdatasync(fd)
        return total_bytes / (CLOCK.monotonic() - begin)
    finally:
        os.close(fd)
