import struct

from threefs_fuse import replies
from threefs_fuse.dirents import Dirents
from threefs_fuse.protocol import OpenFlag
from threefs_fuse.replies import Entry, Opened, Page, Space
from threefs_fuse.requests import Lock

FILE = Entry(
    5, 0o100644, 2, 10, 20, 0, 1025, 3, 4096, 10**18 + 1, 2, -(10**9) + 5, name_s=1.5, attributes_s=2.25, generation=9
)  # fmt: skip


def test_an_entry() -> None:
    (packed,) = replies.entry(FILE)
    assert len(packed) == 128
    assert struct.unpack_from("=QQQQII", packed) == (5, 9, 1, 2, 500_000_000, 250_000_000)
    assert struct.unpack_from("=QQQQQQIIIIIIIIII", packed, 40) == (
        5, 1025, 3, 10**9, 0, 2**64 - 1, 1, 2, 5, 0o100644, 2, 10, 20, 0, 4096, 0,
    )  # fmt: skip


def test_attributes() -> None:
    (packed,) = replies.attributes(FILE)
    assert len(packed) == 104
    assert struct.unpack_from("=QII", packed) == (2, 250_000_000, 0)


def test_more_attributes() -> None:
    (packed,) = replies.statx(FILE._replace(birth_ns=10**18 + 3))
    assert len(packed) == 288
    assert struct.unpack_from("=QII", packed) == (2, 250_000_000, 0)
    assert struct.unpack_from("=IIQIIIH2xQQQQ", packed, 32) == (
        0xFFF, 4096, 0, 2, 10, 20, 0o100644, 5, 1025, 3, 0,
    )  # fmt: skip
    times = struct.unpack_from("=qI4xqI4xqI4xqI4x", packed, 32 + 64)
    assert times == (10**9, 1, 10**9, 3, -1, 5, 0, 2), "of reading, birth, change, writing"
    (packed,) = replies.statx(FILE)
    assert struct.unpack_from("=I", packed, 32) == (0x7FF,), "its birth is not known"


def test_small_answers() -> None:
    assert replies.opened(Opened(7, OpenFlag.KEEP_CACHE)) == (struct.pack("=QII", 7, 2, 0),)
    assert b"".join(replies.created((FILE, Opened(7))))[128:] == struct.pack("=QII", 7, 0, 0)
    assert replies.written(5) == (struct.pack("=II", 5, 0),)
    assert replies.offset(2**40) == (struct.pack("=Q", 2**40),)
    assert replies.size(5) == (struct.pack("=II", 5, 0),)
    assert replies.lock(Lock(1, 2, 3, 4)) == (struct.pack("=QQII", 1, 2, 3, 4),)
    assert replies.names([b"user.a", b"user.b"]) == (b"user.a\0user.b\0",)
    assert replies.nothing(None) == () and replies.plain(b"x") == (b"x",)
    (space,) = replies.space(Space(4096, 5, 4, 3, 2, 1))
    assert len(space) == 80 and struct.unpack_from("=QQQQQIII", space) == (5, 4, 3, 2, 1, 4096, 255, 4096)


def test_a_page_ends_where_the_room_ends() -> None:
    page = Page(64, plus=False)
    assert page.add(b"12345678", 1, 7, 0o100000) and page.add(b"a", 2, 8, 0o40000)
    assert not page.add(b"b", 3, 9, 0o40000)
    (packed,) = replies.page(page)
    assert packed[:32] == struct.pack("=QQII", 7, 1, 8, 8) + b"12345678"
    assert packed[32:] == struct.pack("=QQII", 8, 2, 1, 4) + b"a" + bytes(7)


def test_a_page_with_attributes_may_lack_some() -> None:
    page = Page(4096, plus=True)
    assert page.add(b"a", 1, 5, 0o100000, FILE) and page.add(b"b", 2, 6, 0o100000)
    (packed,) = page.parts
    assert packed[:128] == replies.entry(FILE)[0]
    assert packed[160 : 160 + 128] == bytes(128)  # inode 0: nothing is said of it


def test_what_is_prepared_lacks_only_how_long_it_may_be_kept() -> None:
    for seconds in (0.0, 0.25, 1.5, 3600.0):
        node, rest = replies.prepared(FILE)
        whole = replies.packed(FILE._replace(name_s=seconds, attributes_s=seconds))
        assert node + replies.valid(seconds) + rest == whole and len(whole) == 128


def test_a_page_takes_packed_entries_as_far_as_there_is_room() -> None:
    row = Dirents(b"a\0b\0c\0", struct.pack("<3Q", 5, 6, 7), b"\x08\x04\x08", 1)
    plain = Page(4096, plus=False)
    assert plain.fill(row, 1) == 2 and replies.page(plain)[0] == bytes(row.packed[32:])
    assert Page(95, plus=False).fill(row, 0) == 2
    assert Page(319, plus=True).fill(row, 0) == 1
    page = Page(320, plus=True)
    assert page.fill(row, 1, lambda dirents, number, count: [None, replies.packed(FILE)][number - 1 :][:count]) == 2
    (packed,) = page.parts
    assert packed == bytes(128) + row.packed[32:64] + replies.entry(FILE)[0] + row.packed[64:]


def test_the_kernel_is_notified_of_changed_attributes() -> None:
    assert replies.attributes_changed(5) == struct.pack("=IiQQqq", 40, 2, 0, 5, -1, 0)


def test_the_kernel_is_notified_of_changed_content() -> None:
    assert replies.content_changed(5) == struct.pack("=IiQQqq", 40, 2, 0, 5, 0, 0)
