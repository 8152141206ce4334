"""Programs on different mounts that count in one file, under a lock: `python -m tests.chaos.locker FILE STOP`.

Each step locks the file, reads the number in it, and stores the next one. It prints `told NUMBER TIME` once fsync has
said that it is stored, and `began NUMBER TIME` before. Two holders of the lock at a time would tell the same number
twice, and bytes that were written under a lock that was lost would take numbers back. It ends when the file STOP is
there, or its parent is gone.
"""

import fcntl
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

DIGITS = 12
_PAUSE_S = 0.02
_TROUBLE_S = 0.5


def step(path: str) -> None:
    """Raises OSError: the number may have been stored or not."""
    file = os.open(path, os.O_RDWR)
    try:
        fcntl.lockf(file, fcntl.LOCK_EX)
        number = int(os.pread(file, DIGITS, 0) or b"0") + 1
        print(f"began {number} {time.monotonic():.4f}", flush=True)
        os.pwrite(file, b"%0*d" % (DIGITS, number), 0)
        os.fsync(file)
        print(f"told {number} {time.monotonic():.4f}", flush=True)
    finally:
        os.close(file)


def judge(lines: Iterable[str], last: int) -> list[str]:
    """What is wrong with what all of them printed, and the number that is in the file in the end."""
    told: Counter[int] = Counter()
    began: set[int] = set()
    for line in lines:
        word, number, *_ = [*line.split(), ""]
        if word == "told":
            told[int(number)] += 1
        elif word == "began":
            began.add(int(number))
    found = [
        f"I18: {count} holders of the lock have stored number {number}" for number, count in told.items() if count > 1
    ]
    if told and last < max(told):
        found.append(f"I18: number {max(told)} was stored and told, and the file holds {last}")
    if last and last not in began:
        found.append(f"I12: the file holds {last}, which nobody has written")
    return found


def main(path: str, stop: str) -> None:
    parent = os.getppid()
    while not Path(stop).exists() and os.getppid() == parent:
        try:
            step(path)
        except (OSError, ValueError) as error:  # a mount that died, a lock that was lost: come again
            print(f"failed {time.monotonic():.4f} {error}", flush=True)
            time.sleep(_TROUBLE_S)
        time.sleep(_PAUSE_S)


if __name__ == "__main__":
    main(*sys.argv[1:])
