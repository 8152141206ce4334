from collections.abc import Callable

from threefs_mount.cache import directory_attrs
from threefs_mount.cache.directory_attrs import DirectoryAttrCache

from threefs.wire import meta_pb2 as pb


def directory(number: int = 7, mtime_ns: int = 100) -> pb.Inode:
    return pb.Inode(inode=number, type=pb.DIRECTORY, nlink=2, mode=0o755, mtime_ns=mtime_ns, ctime_ns=mtime_ns)


def knowing(inode: pb.Inode, cache_s: float = 1.0) -> DirectoryAttrCache:
    known = DirectoryAttrCache(cache_s)
    known.answered(inode.inode, known.asking(inode.inode), inode, 10.0)
    return known


def test_what_was_asked_for_is_known_for_a_while() -> None:
    known = knowing(directory())
    assert known.find(7, 10.25) == (directory(), 0.75)
    assert known.find(8, 10.25) is None
    assert known.find(7, 11.0) is None


def test_only_of_directories_and_only_if_the_kernel_may_keep_it() -> None:
    assert knowing(pb.Inode(inode=7, type=pb.FILE)).find(7, 10.0) is None
    assert knowing(directory(), cache_s=0.0).find(7, 10.0) is None


def test_a_change_of_ours_shows_at_once() -> None:
    known = knowing(directory())
    known.changed(7, 200)
    known.changed(7, 150)  # answered later
    found = known.find(7, 10.5)
    assert found is not None
    assert (found[0].mtime_ns, found[0].ctime_ns, found[1]) == (200, 200, 0.5)


def test_an_unknown_change_ends_it() -> None:
    known = DirectoryAttrCache(1.0)
    ends: list[Callable[[], None]] = [lambda: known.changed(7, 0), lambda: known.forget(7), known.clear]
    for end in ends:
        known.answered(7, known.asking(7), directory(), 10.0)
        end()
        assert known.find(7, 10.0) is None


def test_an_answer_from_before_a_change_is_not_kept() -> None:
    known = DirectoryAttrCache(1.0)
    changes: list[Callable[[], None]] = [lambda: known.changed(7, 200), lambda: known.forget(7), known.clear]
    for change in changes:
        ask = known.asking(7)
        change()
        known.answered(7, ask, directory(), 10.0)
        assert known.find(7, 10.0) is None


def test_an_answer_that_was_overtaken_by_a_later_question_is_not_kept() -> None:
    known = DirectoryAttrCache(1.0)
    first = known.asking(7)
    second = known.asking(7)
    known.answered(7, first, directory(), 10.0)
    assert known.find(7, 10.0) is None
    known.answered(7, second, None, 10.0)  # it failed
    assert known.find(7, 10.0) is None and not known._asked


def test_a_removed_directory_is_known_until_the_kernel_forgets_it() -> None:
    known = knowing(directory())
    known.removed(directory())
    found = known.find_removed(7)
    assert known.find(7, 10.0) is None and found is not None and found.nlink == 0
    known.let_go([(8, 1), (7, 1)])
    assert known.find_removed(7) is None


def test_the_memory_is_bounded() -> None:
    known = DirectoryAttrCache(1.0)
    for number in range(1, directory_attrs.MOST_DIRECTORIES + 2):
        known.answered(number, known.asking(number), directory(number), 10.0)
        known.removed(directory(number + 10_000))
    assert known.find(1, 10.0) is None and known.find(2, 10.0) is not None
    assert known.find_removed(10_001) is None and known.find_removed(10_002) is not None
