"""A device or a pipe that the user has named as the place of a copy: it is written to, not replaced.

No thread waits for the other end of a pipe or a terminal, because Ctrl-C could not end that.
"""

import errno
import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import BinaryIO, cast

from threefs.env import standard_streams
from threefs.env.clock import CLOCK
from threefs_cli.error_names import with_filename

_RETRY_S = 0.1


def is_special(path: str) -> bool:
    """Whether a device, pipe or socket is there, perhaps behind a link."""
    try:
        return stat.S_IFMT(os.stat(path).st_mode) not in (stat.S_IFREG, stat.S_IFDIR)
    except OSError:  # nothing there, or a link to nowhere
        return False


@asynccontextmanager
async def opened(path: str) -> AsyncIterator[BinaryIO]:
    """Open it for writing by `standard_streams.write`. A pipe has a reader then. Raises OSError."""
    with with_filename(path), os.fdopen(await _open(path), "wb", buffering=0) as sink:
        yield cast(BinaryIO, sink)


async def _open(path: str) -> int:
    while True:
        try:
            file = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        except OSError as error:
            if error.errno != errno.ENXIO or not stat.S_ISFIFO(os.stat(path).st_mode):
                raise
            await CLOCK.sleep(_RETRY_S)
        else:
            # A terminal that is ready may take fewer bytes than it is given: a write to it would wait for the rest.
            os.set_blocking(file, not standard_streams.may_wait_forever(file))
            return file
