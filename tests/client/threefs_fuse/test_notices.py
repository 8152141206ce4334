import struct

from threefs_fuse import notices


def test_the_kernel_is_told() -> None:
    assert notices.attributes_changed(5) == struct.pack("=IiQQqq", 40, 2, 0, 5, -1, 0)
    assert notices.content_changed(5, 10, 20) == struct.pack("=IiQQqq", 40, 2, 0, 5, 10, 20)
    assert notices.name_changed(1, b"ab") == struct.pack("=IiQQII", 35, 3, 0, 1, 2, 0) + b"ab\0"
