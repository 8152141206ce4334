"""Work in a forked child."""

import os
import signal
import traceback
from collections.abc import Callable


def in_child(work: Callable[[], object], limit_s: int = 60) -> int:
    """Exit status of a forked child that does `work`: 0 if that raises nothing."""
    pid = os.fork()
    if pid == 0:
        try:
            signal.alarm(limit_s)
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
