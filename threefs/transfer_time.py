"""How long the bytes of chunks may be on their way from one process to another, beyond the time of a call without any.

A chunk has up to 64 MiB, and a link may be slow, or give each of many flows a little. A call that is given up before
its bytes have passed is made again, and they never pass.
"""

#: A flow with less does not pass large chunks: a stalled call has to end at some time.
MIN_BYTES_PER_S = 1 << 20


def transfer_s(size: int, hops: int = 0) -> float:
    """For so many bytes to a process, and from there through so many more, one after the other."""
    return size * (1 + hops) / MIN_BYTES_PER_S
