from threefs_mount.cache.dirent_columns import Attributes, DirentPage, ListedAttributes


def names_of(*names: bytes, more: bool = False) -> DirentPage:
    inodes = b"".join(number.to_bytes(8, "little") for number in range(len(names)))
    return DirentPage(b"".join(name + b"\0" for name in names), inodes, bytes(len(names)), more, 5)


def test_pages_are_cut_and_put_together() -> None:
    page = names_of(b"a", b"bb", b"c")
    assert len(page) == 3 and page.last == b"c" and names_of(b"bb").last == b"bb"
    assert page.up_to(b"bc", 10) == names_of(b"a", b"bb") and page.up_to(b"z", 1) == names_of(b"a")
    both = page.joined(names_of(b"d", more=True))
    assert both.names == b"a\0bb\0c\0d\0" and len(both) == 4 and both.more and len(both.inodes) == 32


def test_which_of_them_were_invalidated() -> None:
    listed = ListedAttributes(7, b"a\0b\0c\0", (100, 101, 102), Attributes([b"", b"", b""], 0.0, 0), [None, None, None])
    assert listed.invalidated({100, (7, b"b"), (8, b"c"), (7, b"d"), 7}) == {100, 101}
