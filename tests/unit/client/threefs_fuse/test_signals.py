import os
import signal
import subprocess
import sys

import pytest
from threefs_fuse import signals

STATUS = b"Name:\tx\nSigPnd:\t%016x\nShdPnd:\t%016x\nSigBlk:\t%016x\nSigIgn:\t%016x\nSigCgt:\t%016x\nCapInh:\t0\n"
TERM, KILL, USR1 = 1 << 14, 1 << 8, 1 << 9


def test_what_ends_a_process() -> None:
    assert not signals.has_deadly_signal(STATUS % (0, 0, 0, 0, 0))
    assert signals.has_deadly_signal(STATUS % (0, TERM, 0, 0, 0)) and signals.has_deadly_signal(
        STATUS % (TERM, 0, 0, 0, USR1)
    )
    assert signals.has_deadly_signal(STATUS % (KILL, 0, KILL, KILL, KILL))
    for blocked, ignored, caught in ((USR1, 0, 0), (0, USR1, 0), (0, 0, USR1)):
        assert not signals.has_deadly_signal(STATUS % (USR1, USR1, blocked, ignored, caught))

    for number in (signal.SIGCHLD, signal.SIGCONT, signal.SIGTSTP, signal.SIGTTOU, signal.SIGURG, signal.SIGWINCH):
        assert not signals.has_deadly_signal(STATUS % (0, 1 << (number - 1), 0, 0, 0)), (
            "who is stopped by Ctrl-Z goes on later"
        )


def test_processes() -> None:
    assert not signals.is_dying(os.getpid())
    assert signals.is_dying(0) and signals.is_dying(1 << 30)


@pytest.mark.processes
def test_a_process_that_is_being_taken_apart() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    assert signals.is_exiting(ended.pid)
    ended.wait()
    assert not signals.is_exiting(os.getpid()) and not signals.is_exiting(0)
