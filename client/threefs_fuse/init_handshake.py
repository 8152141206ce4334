"""What the kernel and the file system agree on before anything else."""

from dataclasses import dataclass
from struct import Struct

from threefs_fuse import protocol, requests
from threefs_fuse.protocol import Feature
from threefs_fuse.requests import Malformed

_OUT = Struct("=IIIIHHIIHHI28x")
_LOW = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class SessionOptions:
    features: Feature = Feature.ASYNC_READ | Feature.BIG_WRITES | Feature.PARALLEL_DIROPS
    background: int = 64  # so many requests that no program waits for (read-ahead, mostly) at a time


@dataclass(frozen=True, slots=True)
class Negotiated:
    minor: int
    features: Feature


def answer(body: memoryview, options: SessionOptions) -> tuple[Negotiated | None, bytes]:
    """What holds, and how the kernel is told. None: it is asked for another version, and will try again.

    Raises Malformed, also for a kernel that is too old.
    """
    major, minor, read_ahead, low = requests.INIT.unpack_from(body)
    if major > protocol.MAJOR:
        return None, _OUT.pack(protocol.MAJOR, protocol.NEWEST_MINOR, *[0] * 9)
    if major < protocol.MAJOR or minor < protocol.OLDEST_MINOR:
        raise Malformed(
            f"the kernel speaks version {major}.{minor}, and {protocol.MAJOR}.{protocol.OLDEST_MINOR} is needed"
        )
    offered = low
    if low & Feature.INIT_EXT and len(body) >= requests.INIT.size + requests.FLAGS2.size:
        offered |= requests.FLAGS2.unpack_from(body, requests.INIT.size)[0] << 32
    features = Feature(offered & (options.features | Feature.MAX_PAGES | Feature.INIT_EXT))
    agreed = Negotiated(min(minor, protocol.NEWEST_MINOR), features)
    return agreed, _OUT.pack(
        protocol.MAJOR,
        agreed.minor,
        read_ahead,
        features & _LOW,
        options.background,
        options.background * 3 // 4,
        protocol.MAX_PAYLOAD_BYTES,
        1,  # times are exact to the nanosecond
        protocol.MAX_PAGES,
        0,
        features >> 32,
    )
