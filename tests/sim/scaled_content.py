"""Large content whose history stays small: each byte of the history stands for so many equal bytes in the chunk.

So a chunk of 256 KiB has a history of 600 bytes, which the checker of linearizability can try in all orders. A piece of
it that is torn, mixed up or in the wrong place is still noticed: its bytes are not equal any more.
"""

import numpy as np


def expand(history: bytes, grain: int) -> bytes:
    """What lies in the chunk."""
    return history if grain == 1 else np.repeat(np.frombuffer(history, np.uint8), grain).tobytes()


def shrink(content: bytes, grain: int) -> bytes:
    """What the history says of it. Raises AssertionError where the bytes of one grain are not equal (I12)."""
    history = content[::grain]
    if grain > 1 and expand(history, grain) != content:
        torn = next(at for at in range(0, len(content), grain) if len(set(content[at : at + grain])) > 1)
        raise AssertionError(
            f"I12: bytes {torn} to {torn + grain} are {set(content[torn : torn + grain])}: nobody wrote that"
        )
    return history
