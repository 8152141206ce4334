"""The options of a mount."""

from dataclasses import dataclass

from threefs_fuse import mounting
from threefs_fuse.mounting import MountRequest

from threefs.errors import InvalidArgument
from threefs.leases import MAX_OPERATION_S

#: Options of mount(8) that go to the kernel, or to its helper, as they are.
KERNEL_OPTIONS = mounting.known_options()
MIN_DIRTY_BYTES = 1 << 20  # what the kernel hands over in one call


@dataclass(frozen=True, slots=True)
class MountOptions:
    cache_s: float = 1.0  # how long names and attributes are valid without a question to the cluster
    timeout_s: float = 60.0  # of a call; then it fails with EIO or ETIMEDOUT
    max_dirty_bytes: int = 64 << 20  # written bytes that are not sent yet, of all files together
    read_ahead_bytes: int = 4 << 20  # of each file that is read in sequence; only root can set it
    allow_other: bool = True  # other users may use it too
    flags: tuple[str, ...] = ()
    supervise: bool = False  # a parent starts the process again if it dies
    key_file: str = ""  # has the key of the cluster
    metrics_port: int = 0  # HTTP for Prometheus on this machine; 0: none

    def __post_init__(self) -> None:
        if not 0 <= self.cache_s <= 3600:
            raise InvalidArgument(f"the cache time is from 0 to 3600 seconds, not {self.cache_s!r}")
        if not 0 < self.timeout_s <= MAX_OPERATION_S:
            raise InvalidArgument(
                f"the timeout is more than 0 and at most {MAX_OPERATION_S:g} seconds, as the cluster keeps the "
                f"results of changes only so long, not {self.timeout_s!r}"
            )
        if self.max_dirty_bytes < MIN_DIRTY_BYTES:
            raise InvalidArgument(f"max_dirty_bytes is at least 1 MiB, not {self.max_dirty_bytes}")
        if self.read_ahead_bytes < 0:
            raise InvalidArgument(f"read_ahead_bytes cannot be negative: {self.read_ahead_bytes}")
        if not 0 <= self.metrics_port <= 65535:
            raise InvalidArgument(f"metrics_port is a port, or 0 for none, not {self.metrics_port}")
        unknown = sorted(set(self.flags) - KERNEL_OPTIONS)
        if unknown:
            raise InvalidArgument(f"unknown mount option {unknown[0]!r}; known are {', '.join(sorted(KERNEL_OPTIONS))}")

    @property
    def noatime(self) -> bool:
        """Reads leave access times as they are."""
        return not {"noatime", "ro"}.isdisjoint(self.flags)

    def for_kernel(self, source: str, point: str) -> MountRequest:
        return MountRequest(point, source, "threefs", self.flags, self.allow_other)
