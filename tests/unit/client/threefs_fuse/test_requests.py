import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from threefs_fuse import protocol, requests
from threefs_fuse.requests import Lock, Malformed, Setting


def body(layout: str, *values: int) -> memoryview:
    return memoryview(struct.pack("=" + layout, *values))


def test_names_end_with_a_zero() -> None:
    assert requests.name(memoryview(b"a b\xff\0")) == (b"a b\xff",)
    assert requests.symlink(memoryview(b"new\0target\0")) == (b"new", b"target")
    for wrong in (b"", b"endless", b"x" * 20_000 + b"\0"):
        with pytest.raises(Malformed):
            requests.name(memoryview(wrong))
    with pytest.raises(Malformed):
        requests.symlink(memoryview(b"one\0"))


def test_only_what_is_valid_is_set() -> None:
    def setting(valid: int) -> Setting:
        return requests.setattr_(
            body("IIQQQQQQIIIIIIII", valid, 0, 9, 5, 0, 2**64 - 2, 3, 0, 4, 6, 0, 0o644, 0, 1, 2, 0)
        )[0]

    assert setting(0) == Setting()
    assert setting(1 | 2 | 4 | 8) == Setting(mode=0o644, uid=1, gid=2, size=5)
    assert setting(16 | 32) == Setting(atime_ns=-2 * 10**9 + 4, mtime_ns=3 * 10**9 + 6)
    assert setting(16 | 32 | 128 | 256 | 64) == Setting(atime_now=True, mtime_now=True, handle=9)
    assert setting(1 << 11) == Setting(kill_privileges=True)


def test_times_that_cannot_be_stored_become_the_nearest_that_can() -> None:
    far, seconds = 16_725_225_600, 2**64 - 16_725_225_600  # the year 2500, and as long before 1970
    wanted = body("IIQQQQQQIIIIIIII", 16 | 32, 0, 9, 5, 0, far, seconds, 0, 4, 6, 0, 0o644, 0, 1, 2, 0)
    assert requests.setattr_(wanted)[0] == Setting(atime_ns=2**63 - 1, mtime_ns=-(2**63))


def test_a_write_has_the_length_that_it_says() -> None:
    head = struct.pack("=QQIIQII", 7, 4096, 3, protocol.WRITE_KILL_SUIDGID, 0, 0o2001, 0)
    handle, offset, data, how, flags = requests.write(memoryview(head + b"abc"))
    assert (handle, offset, bytes(data), how, flags) == (7, 4096, b"abc", 4, 0o2001)
    for wrong in (head + b"ab", head + b"abcd"):
        with pytest.raises(Malformed):
            requests.write(memoryview(wrong))


def test_no_read_is_larger_than_agreed() -> None:
    assert requests.read(body("QQIIQII", 1, 2, 2**32 - 1, 0, 0, 0, 0)) == (1, 2, protocol.MAX_PAYLOAD_BYTES)


def test_values_of_attributes_may_have_zeros() -> None:
    named = b"user.a\0v\0lue"
    assert requests.setxattr(memoryview(struct.pack("=IIII", 5, 1, 0, 0) + named)) == (b"user.a", b"v\0lue", 1)
    assert requests.old_setxattr(memoryview(struct.pack("=II", 5, 2) + named)) == (b"user.a", b"v\0lue", 2)
    with pytest.raises(Malformed):
        requests.setxattr(memoryview(struct.pack("=IIII", 6, 1, 0, 0) + named))


def test_locks() -> None:
    wanted = body("QQQQIIII", 3, 2**63, 10, 19, 1, 77, 1, 0)
    assert requests.lock(wanted) == (3, 2**63, Lock(10, 19, 1, 77), True)


def test_open_and_create_and_the_rest() -> None:
    assert requests.open_(body("II", 0o1001, 1)) == (0o1001, True)
    assert requests.create(memoryview(struct.pack("=IIII", 1, 2, 3, 0) + b"n\0")) == (b"n", 1, 2, 3)
    assert requests.mknod(memoryview(struct.pack("=IIII", 1, 2, 3, 0) + b"n\0")) == (b"n", 1, 2, 3)
    assert requests.mkdir(memoryview(struct.pack("=II", 1, 2) + b"n\0")) == (b"n", 1, 2)
    assert requests.rename(memoryview(struct.pack("=Q", 5) + b"a\0b\0")) == (b"a", 5, b"b", 0)
    assert requests.rename2(memoryview(struct.pack("=QII", 5, 2, 0) + b"a\0b\0")) == (b"a", 5, b"b", 2)
    assert requests.link(memoryview(struct.pack("=Q", 5) + b"b\0")) == (5, b"b")
    assert requests.getattr_(body("IIQ", 1, 0, 8)) == (8,) and requests.getattr_(body("IIQ", 0, 0, 8)) == (None,)
    assert requests.statx(body("IIQII", 1, 0, 8, 0, 0xFFF)) == (8,)
    assert requests.statx(body("IIQII", 0, 0, 8, 0, 0xFFF)) == (None,)
    assert requests.release(body("QIIQ", 1, 0, 2, 9)) == (1, 9, True)
    assert requests.releasedir(body("QIIQ", 1, 0, 0, 0)) == (1,)
    assert requests.flush(body("QIIQ", 1, 0, 0, 9)) == (1, 9)
    assert requests.fsync(body("QII", 1, 1, 0)) == (1, True)
    assert requests.getxattr(memoryview(struct.pack("=II", 64, 0) + b"user.a\0")) == (64, b"user.a")
    assert requests.listxattr(body("II", 64, 0)) == (64,)
    assert requests.access(body("II", 4, 0)) == (4,)
    assert requests.fallocate(body("QQQII", 1, 2, 3, 4, 0)) == (1, 2, 3, 4)
    assert requests.lseek(body("QQII", 1, 2, 3, 0)) == (1, 2, 3)
    assert requests.copy_file_range(body("QQQQQQQ", 1, 2, 3, 4, 5, 6, 0)) == (1, 2, 3, 4, 5, 6)
    assert requests.nothing(body("")) == ()


def test_forgetting() -> None:
    assert requests.forget(7, body("Q", 3)) == ((7, 3),)
    assert requests.batch_forget(body("IIQQQQ", 2, 0, 7, 3, 8, 1)) == ((7, 3), (8, 1))
    with pytest.raises(Malformed):
        requests.batch_forget(body("IIQQ", 2**32 - 1, 0, 7, 3))


def test_groups_are_found_among_extensions() -> None:
    other = struct.pack("=IIQ", 16, 99, 0)
    groups = struct.pack("=IIIII", 20, protocol.EXTENSION_GROUPS, 2, 100, 200) + bytes(4)
    assert requests.groups(memoryview(other + groups)) == (100, 200)
    assert requests.groups(memoryview(other)) == ()
    assert requests.groups(memoryview(struct.pack("=II", 0, 99) * 3)) == ()


@given(st.binary(max_size=200))
def test_anything_is_read_or_refused(data: bytes) -> None:
    for take in (
        requests.name, requests.getattr_, requests.setattr_, requests.symlink, requests.mknod, requests.mkdir,
        requests.rename, requests.rename2, requests.link, requests.open_, requests.create, requests.read,
        requests.write, requests.release, requests.releasedir, requests.flush, requests.fsync, requests.setxattr,
        requests.old_setxattr, requests.getxattr, requests.listxattr, requests.lock, requests.access,
        requests.fallocate, requests.lseek, requests.copy_file_range, requests.batch_forget, requests.groups,
    ):  # fmt: skip
        with contextlib.suppress(Malformed, struct.error):
            take(memoryview(data))
