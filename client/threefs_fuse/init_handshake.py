"""The handshake (INIT): the version and the features on which the kernel and the file system agree."""

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
    background: int = 64  # requests at a time that no program waits for (mostly read-ahead)


@dataclass(frozen=True, slots=True)
class Negotiated:
    minor: int
    features: Feature


def answer(body: memoryview, options: SessionOptions) -> tuple[Negotiated | None, bytes]:
    """(what was agreed, the packed answer). The former is None if the kernel must try again with another version.

    Raises Malformed, also for a kernel that is too old.
    """
    major, minor, read_ahead, low = requests.INIT.unpack_from(body)
    if major > protocol.MAJOR:
        return None, _OUT.pack(protocol.MAJOR, protocol.NEWEST_MINOR, *[0] * 9)
    if major < protocol.MAJOR or minor < protocol.OLDEST_MINOR:
        raise Malformed(
            f"the kernel has version {major}.{minor} of the FUSE protocol; at least "
            f"{protocol.MAJOR}.{protocol.OLDEST_MINOR} is needed (Linux 5.4)"
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
        1,  # granularity of times: a nanosecond
        protocol.MAX_PAGES,
        0,
        features >> 32,
    )
