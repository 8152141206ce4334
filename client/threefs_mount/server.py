"""The process behind a mount."""

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path

import pyfuse3
import structlog
from threefs_client import connect_async

from threefs.errors import Unavailable
from threefs_mount import mountpoints
from threefs_mount.kernel_tasks import KernelTasks
from threefs_mount.open_files import OpenFiles
from threefs_mount.operations import Operations
from threefs_mount.options import MountOptions

_CONNECT_S = 10.0

_LOG = structlog.get_logger()


async def serve(url: str, point: str, options: MountOptions, ready: Callable[[], None]) -> None:
    """Mount, call `ready`, and return after the unmount, or after SIGTERM or SIGINT, which unmount.

    Raises what `connect` raises, and Unavailable when the kernel does not mount it.
    """
    async with await connect_async(url, timeout_s=options.timeout_s, connect_timeout_s=_CONNECT_S) as fs:
        files = OpenFiles(fs.link, options.held_bytes)
        vars(pyfuse3)["trio"] = KernelTasks()  # where its own layer for asyncio puts itself too

        def mounted() -> None:
            set_read_ahead(point, options.read_ahead_bytes)
            ready()

        operations = Operations(fs.link, files, options.cache_s, mounted)
        try:
            pyfuse3.init(operations, point, options.for_kernel(url))
        except RuntimeError as error:
            raise Unavailable(f"the kernel does not mount it: {error}") from None
        try:
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, pyfuse3.terminate)
            files.start()
            await pyfuse3.main()
        finally:
            await files.stop()
            pyfuse3.close(unmount=True)
    _LOG.info("unmounted", mountpoint=point)


def set_read_ahead(point: str, size_bytes: int) -> None:
    """The kernel's own limit suits a disk in the same machine. Only root may change it; else it stays."""
    mount = mountpoints.find(point)
    if mount is None or not size_bytes:
        return
    try:
        Path(f"/sys/class/bdi/{mount.device}/read_ahead_kb").write_text(str(size_bytes >> 10))
    except OSError as error:
        _LOG.info("the kernel keeps its own read-ahead", reason=str(error))
