import numpy as np
import pytest
from threefs_client.byte_view import byte_view

from threefs.errors import InvalidArgument


def test_flat_takes_any_contiguous_buffer() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert bytes(byte_view(array)) == array.tobytes()
    assert bytes(byte_view(np.zeros(0))) == b""
    assert bytes(byte_view(np.zeros(3, np.float16))) == bytes(6)
    assert byte_view(array).nbytes == 24
    half = np.zeros(2, np.dtype("V3"))
    assert len(byte_view(half)) == 6
    with pytest.raises(InvalidArgument):
        byte_view(7)
