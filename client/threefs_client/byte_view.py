"""The bytes of a caller's buffer, without a copy."""

import numpy as np

from threefs.errors import InvalidArgument


def byte_view(data: object, *, writable: bool = False) -> memoryview:
    """The bytes of a buffer without a copy. Raises InvalidArgument unless it is contiguous (and writable)."""
    try:
        view = memoryview(data)  # type: ignore[arg-type]
    except TypeError:
        raise InvalidArgument(f"a bytes-like object is needed, not {type(data).__name__}") from None
    if not view.c_contiguous:
        raise InvalidArgument("the buffer is not contiguous; copy it into a contiguous one")
    if writable and view.readonly:
        raise InvalidArgument("the buffer is read-only")
    if view.format == "B" and view.ndim == 1:
        return view
    if view.nbytes == 0:
        return memoryview(bytearray())
    try:
        return view.cast("B")
    except (TypeError, ValueError):  # a format that only numpy knows
        return np.asarray(data).reshape(-1).view(np.uint8).data
