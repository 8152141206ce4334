from hypothesis import given
from hypothesis import strategies as st
from threefs_fuse.dirents import HEAD, Dirents, _pack_few, _pack_many

NAMES = st.lists(st.binary(min_size=1, max_size=255).filter(lambda name: b"\0" not in name), max_size=20)


def dirents(names: list[bytes], following: int = 3) -> Dirents:
    inodes = b"".join((1 << 63 | number).to_bytes(8, "little") for number in range(len(names)))
    return Dirents(b"".join(name + b"\0" for name in names), inodes, bytes(range(len(names))), following)


@given(NAMES)
def test_as_the_kernel_reads_them(names: list[bytes]) -> None:
    packed, at = dirents(names).packed, 0
    for number, name in enumerate(names):
        assert HEAD.unpack_from(packed, at) == (1 << 63 | number, 3 + number, len(name), number)
        at += HEAD.size
        assert packed[at : at + len(name)] == name and not any(packed[at + len(name) : at + len(name) + -len(name) % 8])
        at += len(name) + -len(name) % 8
    assert at == len(packed)


@given(NAMES, st.integers(0, 2000), st.integers(0, 20))
def test_a_part_is_as_large_as_there_is_room(names: list[bytes], room: int, first: int) -> None:
    row = dirents(names)
    first = min(first, len(names))
    part, count = row.part(first, room)
    assert len(row) == len(names) and len(part) <= room
    assert part == row.packed[row.begin(first) : row.begin(first + count)]
    if first + count < len(names):
        assert row.begin(first + count + 1) - row.begin(first) > room


@given(NAMES, st.integers(0, 4000), st.integers(0, 20), st.sampled_from((0, 8, 128)))
def test_one_by_one_with_something_before_each(names: list[bytes], room: int, first: int, before: int) -> None:
    row = dirents(names)
    first = min(first, len(names))
    wanted: list[bytes] = []
    for number in range(first, len(names)):
        wanted.append(bytes(row.packed[row.begin(number) : row.begin(number + 1)]))
        if sum(map(len, wanted)) + before * len(wanted) > room:
            wanted.pop()
            break
    assert [bytes(one) for one in row.each(first, room, before)] == wanted
    assert row.names(first, len(wanted)) == names[first : first + len(wanted)]


@given(NAMES.filter(bool), st.integers(1, 1 << 40))
def test_few_are_packed_like_many(names: list[bytes], following: int) -> None:
    joined = b"".join(name + b"\0" for name in names)
    inodes, types = bytes(range(8)) * len(names), bytes(range(len(names)))
    few, some = _pack_few(joined, inodes, types, following)
    many, others = _pack_many(joined, inodes, types, following)
    assert few == many and list(some) == list(others)
