from threefs_storage.engine.chunk_record import Block, Version
from threefs_storage.engine.ghost_cache import GhostCache


def version(slot: int, number: int = 1) -> Version:
    return Version(number, 1, 1 << 20, 0, Block(20, slot), 4096, b"")


def test_a_range_that_is_read_again_is_cached() -> None:
    ghosts = GhostCache()
    assert not ghosts.cached(version(1), 0)
    assert not ghosts.note_read(version(1), 0)
    assert not ghosts.cached(version(1), 0)
    assert ghosts.note_read(version(1), 0)
    assert ghosts.cached(version(1), 0)


def test_other_parts_blocks_and_versions_are_apart() -> None:
    ghosts = GhostCache()
    ghosts.note_read(version(1), 0)
    assert not ghosts.note_read(version(1), 512 << 10)
    assert not ghosts.note_read(version(2), 0)
    assert not ghosts.note_read(version(1, number=2), 0)


def test_it_is_bounded_and_forgets_what_is_old() -> None:
    ghosts = GhostCache(most=4)
    for slot in range(100):
        assert not ghosts.note_read(version(slot), 0)
    assert not ghosts.note_read(version(0), 0)
    assert ghosts.note_read(version(99), 0)
    assert len(ghosts._young) + len(ghosts._old) <= 4
