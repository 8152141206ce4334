"""Another client truncates a file that is open here."""

from threefs_mount.files.open_file import OpenFile

from tests.harness.memory_cluster import MemoryFiles
from tests.unit.client.threefs_mount.files.test_open_file import play


def test_a_truncation_that_was_known_before_a_write_takes_nothing_of_it_back() -> None:
    async def scene(files: MemoryFiles, file: OpenFile) -> None:
        await file.write(0, b"x" * 100)
        await file.sync()
        await files.meta._cut(files.meta.files[b"a"], 0)
        file._handle.file.apply_inode(files.meta.files[b"a"], 0)  # as a read or a sync learns of it
        files.storage.pause_s = lambda: 1.0
        await file.write(0, b"y" * 10)
        file.start_flush()
        await files.context.clock.sleep(0.1)
        assert file.overlay_local(files.meta.files[b"a"].__deepcopy__({})).length == 10

    play(scene)


def test_what_is_not_sent_yet_when_the_file_is_truncated_is_its_end() -> None:
    """Bytes that were sent before the truncation counted as well, until the next sync."""

    async def scene(files: MemoryFiles, file: OpenFile) -> None:
        await file.write(0, b"x" * 100)
        await file.flush()
        await file.write(0, b"y" * 10)
        await files.meta._cut(files.meta.files[b"a"], 0)  # by another program
        file.apply_inode(files.meta.files[b"a"])
        assert file.length == 10 and bytes(await file.read(0, 100)) == b"y" * 10
        await file.sync()
        assert files.meta.files[b"a"].length == 10

    play(scene)
