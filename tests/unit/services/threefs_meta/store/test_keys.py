"""Keys sort as they must."""

import itertools

from threefs_meta.store import keys


def test_entries_of_a_directory_are_one_range_in_order_of_their_names() -> None:
    names = [b"\x01", b"a", b"a\x01", b"ab", b"b", "ü".encode(), b"\xf4"]
    made = [keys.entry(5, name) for name in names]
    assert made == sorted(made)
    begin, end = keys.entries(5)
    assert all(begin <= key < end for key in made)
    for stranger in (keys.entry(4, b"\xf4"), keys.entry(6, b"a"), keys.entry(5 + (1 << 32), b"a")):
        assert not begin <= stranger < end
    assert [keys.entry_of(key) for key in made] == [(5, name) for name in names]


def test_a_page_begins_behind_a_name() -> None:
    begin, _ = keys.entries(5, b"a")
    assert keys.entry(5, b"a") < begin <= keys.entry(5, b"a\x01")


def test_inode_numbers_sort_as_numbers() -> None:
    made = [keys.inode(number) for number in (1, 255, 256, 1 << 32, (1 << 64) - 1)]
    assert made == sorted(made)
    assert [keys.inode_of(key) for key in made] == [1, 255, 256, 1 << 32, (1 << 64) - 1]


def test_sessions_belong_to_one_inode() -> None:
    begin, end = keys.sessions(7)
    assert begin <= keys.session(7, b"\0" * 16) < keys.session(7, b"\xff" * 16) < end
    assert not begin <= keys.session(8, b"\0" * 16) < end


def test_replays_of_a_client_are_behind_each_other() -> None:
    for client in (bytes(16), b"\x01" + bytes(15), b"\xff" * 16):
        behind = keys.after_client(keys.replay(client, 1))
        assert keys.replay(client, (1 << 64) - 1) < behind <= keys.REPLAYS[1]
    assert keys.after_client(keys.replay(bytes(16), 9)) <= keys.replay(bytes(15) + b"\x01", 0)


def test_prefixes_do_not_overlap() -> None:
    quotas = [keys.USAGE, keys.LIMITS, keys.DELTAS, keys.RETAGS]
    ranges = sorted(
        [
            *quotas,
            keys.INODES,
            keys.ENTRIES,
            keys.TIMES,
            keys.SESSIONS,
            keys.REPLAYS,
            keys.REMOVALS,
            keys.CLIENTS,
            keys.RENEWALS,
            keys.ENDED,
            keys.HOLDS,
        ]
    )
    for (_, end), (begin, _) in itertools.pairwise(ranges):
        assert end <= begin


def test_removals_are_in_order_of_their_ticks() -> None:
    order = [keys.removal(1, 9), keys.removal(2, 3), keys.removal(2, 4), keys.removal(300, 1)]
    assert order == sorted(order) and [keys.removed_inode(key) for key in order] == [9, 3, 4, 1]
    begin, end = keys.removals(2)
    assert [key for key in order if begin <= key < end] == order[:3]
