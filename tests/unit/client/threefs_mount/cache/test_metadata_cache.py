"""The rule of validity of the whole cache; each part has tests of its own."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from threefs_mount.cache.delegation import DirectoryDelegations
from threefs_mount.cache.metadata_cache import MetadataCache
from threefs_mount.cache.validity import Validity
from threefs_mount.files.open_file_table import OpenFileTable
from threefs_mount.kernel import attrs

from tests.harness.clocks import SteppedClock
from tests.harness.memory_cluster import MemoryFiles
from threefs.errors import NotFound, Unavailable
from threefs.wire import meta_pb2 as pb

CACHE_S = 1.0
DIRECTORY = 7


class Mount:
    def __init__(self) -> None:
        memory = MemoryFiles()
        self.clock = SteppedClock()
        nobody = SimpleNamespace(is_pending=lambda inode: False, among=lambda inodes: set())
        self.context = SimpleNamespace(
            clock=self.clock, meta=memory.context.meta, options=memory.context.options, atime_reporter=nobody
        )
        self.files = OpenFileTable(cast(Any, self.context), 1 << 20, Validity(CACHE_S))
        self.cache = MetadataCache(cast(Any, self.context), self.files, Validity(CACHE_S))

    async def fetch(self, inode: int) -> pb.Inode:
        return pb.Inode(inode=inode, type=pb.DIRECTORY, nlink=2)


async def test_an_answer_is_valid_from_when_its_question_was_sent() -> None:
    mount = Mount()

    async def slowly(inode: int) -> pb.Inode:
        mount.clock.advance(0.75)
        return await mount.fetch(inode)

    await mount.cache.fetch_attributes(DIRECTORY, slowly)
    known = mount.cache.get_attributes(DIRECTORY)
    assert known is not None and known.attributes_s == 0.25
    mount.clock.advance(0.25)
    assert mount.cache.get_attributes(DIRECTORY) is None


async def test_a_change_ends_what_was_known_and_what_is_under_way() -> None:
    mount = Mount()
    await mount.cache.fetch_attributes(DIRECTORY, mount.fetch)

    async def fetched_while_it_changes(inode: int) -> pb.Inode:
        mount.cache.invalidate_inode(DIRECTORY)
        return await mount.fetch(inode)

    assert mount.cache.get_attributes(DIRECTORY) is not None
    before = mount.cache.generation
    await mount.cache.fetch_attributes(DIRECTORY, fetched_while_it_changes)
    assert mount.cache.get_attributes(DIRECTORY) is None and mount.cache.generation > before


@pytest.mark.parametrize("fails", [False, True])
async def test_a_change_of_a_name_invalidates_it_whatever_its_outcome(fails: bool) -> None:
    mount = Mount()
    await mount.cache.fetch_attributes(DIRECTORY, mount.fetch)

    async def call() -> int:
        if fails:
            raise Unavailable("nobody answers")
        return 1

    before = mount.cache.generation
    try:
        await mount.cache.change(call(), (DIRECTORY, b"a"))
    except Unavailable:
        assert mount.cache.get_attributes(DIRECTORY) is None  # whether it has changed is not known
    else:
        assert mount.cache.get_attributes(DIRECTORY) is not None  # the caller says when
    changed = mount.cache.statahead.invalidations.changed_since(before)
    assert changed is not None and (DIRECTORY, b"a") in changed


def test_a_name_is_absent_only_under_a_delegation(monkeypatch: pytest.MonkeyPatch) -> None:
    mount = Mount()
    mount.cache.insert(DIRECTORY, b"a", None)
    assert mount.cache.get(DIRECTORY, b"a") is None
    monkeypatch.setattr(DirectoryDelegations, "is_negative", lambda *_: True)
    assert mount.cache.get(DIRECTORY, b"a") == attrs.ABSENT


async def test_a_removed_directory_is_known_until_the_kernel_forgets_it() -> None:
    mount = Mount()

    async def gone(inode: int) -> pb.Inode:
        raise NotFound("it was removed")

    removed = pb.RemoveReply(directory=pb.Inode(inode=9, type=pb.DIRECTORY, nlink=2))
    mount.cache.unlink_done(None, DIRECTORY, removed)
    with pytest.raises(NotFound):
        await mount.cache.fetch_attributes(9, gone)
    found = mount.cache.get_removed(9)
    assert found is not None and found.nlink == 0
    mount.cache.forget([(9, 1)])
    assert mount.cache.get_removed(9) is None
