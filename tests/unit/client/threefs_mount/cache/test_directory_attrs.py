from collections.abc import Callable

from threefs_mount.cache import directory_attrs
from threefs_mount.cache.directory_attrs import DirectoryAttrCache
from threefs_mount.cache.validity import Validity

from threefs.wire import meta_pb2 as pb


def directory(number: int = 7, mtime_ns: int = 100) -> pb.Inode:
    return pb.Inode(inode=number, type=pb.DIRECTORY, nlink=2, mode=0o755, mtime_ns=mtime_ns, ctime_ns=mtime_ns)


def knowing(inode: pb.Inode, cache_s: float = 1.0) -> DirectoryAttrCache:
    known = DirectoryAttrCache(Validity(cache_s))
    known.end_fetch(inode.inode, known.begin_fetch(inode.inode), inode, 10.0)
    return known


def test_what_was_asked_for_is_known_for_a_while() -> None:
    known = knowing(directory())
    assert known.get(7, 10.25) == (directory(), 0.75)
    assert known.get(8, 10.25) is None
    assert known.get(7, 11.0) is None


def test_only_of_directories_and_only_if_the_kernel_may_keep_it() -> None:
    assert knowing(pb.Inode(inode=7, type=pb.FILE)).get(7, 10.0) is None
    assert knowing(directory(), cache_s=0.0).get(7, 10.0) is None


def test_a_change_of_ours_shows_at_once() -> None:
    known = knowing(directory())
    known.entry_changed(7, 200)
    known.entry_changed(7, 150)  # answered later
    found = known.get(7, 10.5)
    assert found is not None
    assert (found[0].mtime_ns, found[0].ctime_ns, found[1]) == (200, 200, 0.5)


def test_an_unknown_change_ends_it() -> None:
    known = DirectoryAttrCache(Validity(1.0))
    ends: list[Callable[[], None]] = [lambda: known.entry_changed(7, 0), lambda: known.invalidate(7), known.clear]
    for end in ends:
        known.end_fetch(7, known.begin_fetch(7), directory(), 10.0)
        end()
        assert known.get(7, 10.0) is None


def test_an_answer_from_before_a_change_is_not_kept() -> None:
    known = DirectoryAttrCache(Validity(1.0))
    changes: list[Callable[[], None]] = [lambda: known.entry_changed(7, 200), lambda: known.invalidate(7), known.clear]
    for change in changes:
        ask = known.begin_fetch(7)
        change()
        known.end_fetch(7, ask, directory(), 10.0)
        assert known.get(7, 10.0) is None


def test_an_answer_that_was_overtaken_by_a_later_question_is_not_kept() -> None:
    known = DirectoryAttrCache(Validity(1.0))
    first = known.begin_fetch(7)
    second = known.begin_fetch(7)
    known.end_fetch(7, first, directory(), 10.0)
    assert known.get(7, 10.0) is None
    known.end_fetch(7, second, None, 10.0)  # it failed
    assert known.get(7, 10.0) is None and not known._fetches


def test_a_removed_directory_is_known_until_the_kernel_forgets_it() -> None:
    known = knowing(directory())
    known.insert_removed(directory())
    found = known.get_removed(7)
    assert known.get(7, 10.0) is None and found is not None and found.nlink == 0
    known.forget_removed([(8, 1), (7, 1)])
    assert known.get_removed(7) is None


def test_the_memory_is_bounded() -> None:
    known = DirectoryAttrCache(Validity(1.0))
    for number in range(1, directory_attrs.MAX_DIRECTORIES + 2):
        known.end_fetch(number, known.begin_fetch(number), directory(number), 10.0)
        known.insert_removed(directory(number + 10_000))
    assert known.get(1, 10.0) is None and known.get(2, 10.0) is not None
    assert known.get_removed(10_001) is None and known.get_removed(10_002) is not None
