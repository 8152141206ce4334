import dataclasses

from hypothesis import given
from hypothesis import strategies as st
from threefs_storage.engine.chunk_record import Block, Version
from threefs_storage.health.salvage import salvage

from threefs.checksums import CRC_BYTES, crc32c

_SIZE = 16


def version_of(content: bytes) -> Version:
    blocks = [content[at : at + _SIZE] for at in range(0, len(content), _SIZE)]
    crcs = b"".join(crc32c(block).to_bytes(CRC_BYTES, "little") for block in blocks)
    return Version(7, 1, len(content), crc32c(content), Block(12, 0), _SIZE, crcs)


def damaged(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


@given(st.binary(min_size=1, max_size=100), st.data())
def test_kept_bytes_come_from_the_older_version(older: bytes, data: st.DataObject) -> None:
    change = data.draw(st.binary(max_size=40))
    offset = data.draw(st.integers(0, len(older)))
    content = older[:offset] + change + older[offset + len(change) :]
    end = offset + len(change)
    from_block = [each for each in ((0, offset), (end, len(content))) if each[0] < each[1]]
    kept = [place for first, last in from_block for place in range(first, last)]
    raw = content
    for place in data.draw(st.lists(st.sampled_from(kept), unique=True)) if kept else []:
        raw = damaged(raw, place)
    found = salvage(version_of(content), raw, [from_block], older)
    assert found is not None and bytes(found) == content


@given(st.binary(min_size=50, max_size=100), st.data())
def test_what_lies_in_blobs_comes_from_the_older_version_too(base: bytes, data: st.DataObject) -> None:
    """All but the last change is older. Whatever is damaged of it, also all, is taken from there."""
    places = st.tuples(st.integers(0, len(base)), st.integers(0, len(base))).map(sorted)
    changes = data.draw(st.lists(places, min_size=1, max_size=4))
    versions, owners = [base], [0] * len(base)
    for number, (first, last) in enumerate(changes, 1):
        versions.append(versions[-1][:first] + bytes([number]) * (last - first) + versions[-1][last:])
        owners[first:last] = [number] * (last - first)
    parts = [[(place, place + 1) for place, owner in enumerate(owners) if owner == number] for number in range(5)]
    content, older = versions[-1], versions[-2]
    raw = content
    for place, owner in enumerate(owners):
        if owner < len(changes) and data.draw(st.booleans()):
            raw = damaged(raw, place)
    found = salvage(version_of(content), raw, parts, older)
    assert found is not None and bytes(found) == content


def test_bytes_of_another_change_are_not_taken() -> None:
    content = b"a" * 40
    assert salvage(version_of(content), damaged(content, 20), [[(0, 40)]], b"b" * 40) is None
    assert salvage(version_of(content), damaged(content, 30), [[(0, 40)]], b"a" * 25) is None  # it is too short


def test_a_checksum_that_is_wrong_itself_is_not_satisfied() -> None:
    version = dataclasses.replace(version_of(b"a" * 40), block_checksums=bytes(3 * CRC_BYTES))
    assert salvage(version, b"a" * 40, [[(0, 40)]], b"a" * 40) is None
