"""The process behind a mount."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Iterable
from pathlib import Path

import structlog
from prometheus_client import Metric
from threefs_client import AsyncFileSystem, connect_async, credentials
from threefs_client.metrics import ClientMetrics
from threefs_fuse import mounting
from threefs_fuse.init_handshake import SessionOptions
from threefs_fuse.mounting import MountRequest
from threefs_fuse.protocol import Feature
from threefs_fuse.session import Session

from threefs import background
from threefs.background import TaskDied
from threefs.env import process_tuning
from threefs.env.net import RealNet
from threefs.errors import ThreefsError, Unavailable
from threefs.telemetry.metrics_port import MetricsPort
from threefs_mount import mountpoints
from threefs_mount.cache.validity import Validity
from threefs_mount.files.open_file_table import OpenFileTable
from threefs_mount.metrics import mount_metrics
from threefs_mount.options import MountOptions
from threefs_mount.vfs import ThreefsVfs

#: The features that the kernel is asked for. Not its write-back cache: with that the kernel believes its own lengths,
#: and never sees those of other clients.
FEATURES = (
    Feature.ASYNC_READ
    | Feature.POSIX_LOCKS
    | Feature.ATOMIC_O_TRUNC
    | Feature.BIG_WRITES
    | Feature.DONT_MASK
    | Feature.FLOCK_LOCKS
    | Feature.AUTO_INVAL_DATA
    | Feature.DO_READDIRPLUS
    | Feature.READDIRPLUS_AUTO
    | Feature.ASYNC_DIO
    | Feature.PARALLEL_DIROPS
    | Feature.POSIX_ACL
    | Feature.CACHE_SYMLINKS
    | Feature.HANDLE_KILLPRIV_V2
    | Feature.SETXATTR_EXT
    | Feature.CREATE_SUPP_GROUP
    | Feature.DIRECT_IO_ALLOW_MMAP
)
_CONNECT_S = 10.0
_METRICS_HOST = "127.0.0.1"
#: A mount that has become useless gets so long to store what it holds. Then its process ends.
_EXIT_S = 30.0

_LOG = structlog.get_logger()


async def serve(
    url: str, point: str, options: MountOptions, ready: Callable[[], None], replaced: Callable[[], None] | None = None
) -> None:
    """Mount, call `ready`, and return after the unmount, or after SIGTERM or SIGINT, which unmount.

    A dead mount of threefs at the same path is detached. With `replaced`, which is called then, nothing is mounted if
    there is no mount any more. Raises what `connect` raises, InvalidArgument when threefs is mounted there and lives,
    Unavailable when the kernel refuses to mount, TaskDied when a background task has ended that the mount cannot do
    without, and OSError when the session with the kernel has failed. After the last two a mount that was ready stays as
    a dead one, so that no program writes into the directory below it.
    """
    stop = asyncio.Event()
    deaths: list[TaskDied] = []

    def died(name: str, error: BaseException | None) -> None:
        deaths.append(TaskDied(f"the task {name!r} has ended: {error!r}"))
        stop.set()
        asyncio.get_running_loop().call_later(_EXIT_S, os._exit, 1)

    background.on_death(died)
    async with await connect_async(
        url,
        timeout_s=options.timeout_s,
        connect_timeout_s=_CONNECT_S,
        noatime=options.noatime,
        max_dirty_bytes=options.max_dirty_bytes,
        key_file=options.key_file,
    ) as fs:
        # Calls for a program name its user. All others are the mount's own work.
        fs.context.meta.caller = credentials.ROOT
        fs.context.cluster_values.name = f"mount {point} on {os.uname().nodename}, process {os.getpid()}"

        def mounted() -> None:
            set_read_ahead(point, options.read_ahead_bytes)
            process_tuning.freeze_objects()
            ready()

        validity = Validity(options.cache_s)
        files = OpenFileTable(fs.context, options.max_dirty_bytes, validity)
        fs.context.cluster_values.follow("max_dirty_bytes", files.set_max_dirty)
        vfs = ThreefsVfs(fs.context, files, validity, mounted)
        if not make_room(point, replaced):
            return
        session = Session(mount(options.for_kernel(url, point)), vfs, SessionOptions(FEATURES))
        vfs.notify, vfs.notify_and_wait = session.notify, session.notify_and_wait
        session.ended.add_done_callback(lambda _: stop.set())
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        files.start()
        session.start()
        vfs.revalidator.start()
        port = await start_metrics(options.metrics_port, fs, session, files)
        try:
            await stop.wait()
            await session.drain()
        finally:
            await port.stop()
            await vfs.close()
            await files.stop()
            if not deaths and not (session.ended.done() and session.features):
                with contextlib.suppress(OSError):  # another process has unmounted it
                    mounting.unmount(point)
            await session.close()
        if session.ended.done():
            session.ended.result()
    if deaths:
        raise deaths[0]
    _LOG.info("unmounted", mountpoint=point)


def make_room(point: str, replaced: Callable[[], None] | None) -> bool:
    """Detach dead mounts from the path. Returns False if somebody has unmounted the one that was to be replaced. Raises
    InvalidArgument if there is a mount that lives."""
    if replaced is not None and mountpoints.is_dead(point):
        replaced()  # before it is detached: a process that is killed in between is started again
    if not mountpoints.clear_dead(point) and replaced is not None and mountpoints.find(point) is None:
        _LOG.info("unmounted, so it is not mounted again", mountpoint=point)
        return False
    mountpoints.check(point)
    return True


def mount(request: MountRequest) -> int:
    """Mount, and return the open descriptor of /dev/fuse. Raises Unavailable when the kernel refuses."""
    try:
        return mounting.mount(request)
    except OSError as error:
        raise Unavailable(f"the kernel refuses to mount at {request.point}: {error.strerror}") from None


async def start_metrics(number: int, fs: AsyncFileSystem, session: Session, files: OpenFileTable) -> MetricsPort:
    """The port for Prometheus, which listens unless its number is 0. Only then anything is counted."""

    async def collect() -> Iterable[Metric]:
        return [*client.collect(), *mount_metrics(session, files)]

    port = MetricsPort(RealNet(), collect)
    if number:
        client = ClientMetrics(fs)
        session.durations = {}
        try:
            await port.start(_METRICS_HOST, number)
        except ThreefsError as error:  # a mount without metrics is better than none
            _LOG.error("no metrics", reason=str(error))
    return port


def set_read_ahead(point: str, size_bytes: int) -> None:
    """Raise the kernel's read-ahead, whose default suits a local disk. Only root may change it; for others it stays."""
    mount = mountpoints.find(point)
    if mount is None or not size_bytes:
        return
    try:
        Path(f"/sys/class/bdi/{mount.device}/read_ahead_kb").write_text(str(size_bytes >> 10))
    except OSError as error:
        _LOG.info("the kernel keeps its own read-ahead", reason=str(error))
