import struct

from threefs_fuse import notifications


def test_the_kernel_is_told() -> None:
    assert notifications.attributes_changed(5) == struct.pack("=IiQQqq", 40, 2, 0, 5, -1, 0)


def test_the_kernel_is_told_to_give_up_what_it_has() -> None:
    assert notifications.content_changed(5) == struct.pack("=IiQQqq", 40, 2, 0, 5, 0, 0)
