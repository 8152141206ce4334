"""How a cluster is mounted."""

from dataclasses import dataclass

from threefs_fuse import mounting
from threefs_fuse.mounting import MountRequest

from threefs.errors import InvalidArgument
from threefs.leases import MAX_OPERATION_S

#: Options of mount(8) that the kernel or its helper understands, and that we hand on as they are.
KERNEL_OPTIONS = mounting.known_options()


@dataclass(frozen=True, slots=True)
class MountOptions:
    cache_s: float = 1.0  # how long the kernel may answer for names and attributes without asking
    timeout_s: float = 60.0  # after that a call fails with EIO or ETIMEDOUT
    max_dirty_bytes: int = 64 << 20  # written by programs and not sent yet, all files together
    read_ahead_bytes: int = 4 << 20  # of each file that is read in sequence; set by root only
    allow_other: bool = True  # other users may use it too
    flags: tuple[str, ...] = ()
    supervise: bool = False  # the process is started again if it dies
    key_file: str = ""  # with the key of the cluster

    def __post_init__(self) -> None:
        if not 0 <= self.cache_s <= 3600:
            raise InvalidArgument(f"the cache time goes from 0 to 3600 seconds, not {self.cache_s!r}")
        if not 0 < self.timeout_s <= MAX_OPERATION_S:
            most = f"{MAX_OPERATION_S:g} seconds, as long as the cluster surely remembers what it has done"
            raise InvalidArgument(f"the timeout goes from above 0 to {most}, not {self.timeout_s!r}")
        if self.max_dirty_bytes < 1 << 20 or self.read_ahead_bytes < 0:
            raise InvalidArgument("at least 1 MiB must be held for writing, and no less than nothing be read ahead")
        unknown = sorted(set(self.flags) - KERNEL_OPTIONS)
        if unknown:
            raise InvalidArgument(f"unknown mount option {unknown[0]!r}; known are {', '.join(sorted(KERNEL_OPTIONS))}")

    @property
    def noatime(self) -> bool:
        """Reads leave access times as they are."""
        return not {"noatime", "ro"}.isdisjoint(self.flags)

    def for_kernel(self, source: str, point: str) -> MountRequest:
        return MountRequest(point, source, "threefs", self.flags, self.allow_other)
