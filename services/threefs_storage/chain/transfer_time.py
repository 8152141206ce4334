"""How long the bytes of a chunk may be on their way to another storage process, beyond the time of a call without any.

A chunk has up to 64 MiB, and a link may be slow, or give each of many flows a little. A call that is given up before
its bytes have passed is made again, and they never pass.
"""

#: A flow with less does not pass large chunks: a stalled call has to end at some time.
MIN_BYTES_PER_S = 1 << 20


def transfer_s(size: int, hops: int = 0) -> float:
    """For so many bytes to a target, and from there to the targets behind it, one after the other."""
    return size * (1 + hops) / MIN_BYTES_PER_S
