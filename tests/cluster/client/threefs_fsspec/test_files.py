"""File objects: what fsspec and its users ask of them."""

import asyncio
import io
import pickle
from pathlib import Path
from posixpath import basename

import fsspec
import pytest
from threefs_fsspec import ThreefsFileSystem, replacement

CONTENT = bytes(range(256)) * 10_000


def test_a_stream_has_what_libraries_ask_for(threefs: ThreefsFileSystem, place: str) -> None:
    path = f"{place}/a"
    threefs.pipe_file(path, CONTENT)
    with threefs.open(path) as file:
        assert (file.size, file.path, file.mode, file.loc) == (len(CONTENT), path, "rb", 0)
        assert file.fs is threefs and file.full_name == f"{threefs.address}{path}"
        assert file.info() == threefs.info(path)
        assert file.seek(-6, io.SEEK_END) == len(CONTENT) - 6 and file.read() == CONTENT[-6:]
        assert file.seek(1000) == 1000 and file.read(5) == CONTENT[1000:1005]
        again = pickle.loads(pickle.dumps(file))  # noqa: S301
        assert again.tell() == 1005 and again.read(10) == CONTENT[1005:1015]
        again.close()
    assert file.closed
    with threefs.open(path, "r+b") as file:  # in place
        file.write(b"----")
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(file)
    with threefs.open(path, "ab") as file:
        file.write(b"end")
    assert threefs.cat_file(path) == b"----" + CONTENT[4:] + b"end"
    assert threefs.head(path, 4) == b"----" and threefs.tail(path, 3) == b"end"
    assert threefs.read_block(path, 0, 6) == b"----\x04\x05"


@pytest.mark.parametrize("cache", ["filecache", "simplecache"])
def test_it_can_be_read_through_the_caches_of_fsspec(
    threefs: ThreefsFileSystem, place: str, tmp_path: Path, cache: str
) -> None:
    threefs.pipe_file(f"{place}/a", CONTENT)
    with fsspec.open(f"{cache}::{threefs.address}{place}/a", **{cache: {"cache_storage": str(tmp_path)}}) as file:
        assert file.read(5) == CONTENT[:5] and file.seek(1_000_000) and file.read() == CONTENT[1_000_000:]


def test_text_and_compression(threefs: ThreefsFileSystem, place: str) -> None:
    with threefs.open(f"{place}/a.gz", "wt", compression="infer", newline="\n") as file:
        file.writelines(f"line {number}\n" for number in range(1000))
    assert threefs.cat_file(f"{place}/a.gz")[:2] == b"\x1f\x8b"
    with threefs.open(f"{place}/a.gz", "rt", compression="infer") as file:
        assert [*file][-1] == "line 999\n"
    threefs.write_text(f"{place}/b", "äöü")
    assert threefs.read_text(f"{place}/b") == "äöü"


def test_a_file_that_is_never_closed_is_published_at_its_end(threefs: ThreefsFileSystem, place: str) -> None:
    threefs.open(f"{place}/a", "wb").write(b"kept")
    assert threefs.cat_file(f"{place}/a") == b"kept"


def test_streams_of_coroutines_work_on_any_loop(threefs: ThreefsFileSystem, place: str) -> None:
    async def main() -> None:
        async with await threefs.open_async(f"{place}/a", "wb") as file:
            assert await file.write(CONTENT) == len(CONTENT)
            await file.flush()
            assert not await threefs._exists(f"{place}/a")
        async with await threefs.open_async(f"{place}/a", "rb") as file:
            assert file.size == len(CONTENT)
            file.seek(100)
            assert await file.read(20) == CONTENT[100:120] and file.tell() == 120
            assert await file.read() == CONTENT[120:]
        assert file.closed
        with pytest.raises(ValueError, match="binary"):
            await threefs.open_async(f"{place}/a", "r")

    asyncio.run(main())


def test_streams_of_coroutines_that_are_left_open_are_closed_with_the_connection(
    threefs: ThreefsFileSystem, place: str
) -> None:
    """Nobody closed them: their bytes were lost. A new file takes its name, as one of a blocking program does."""
    other = ThreefsFileSystem(threefs.address, timeout_s=29.0)  # another connection
    threefs.pipe_file(f"{place}/cancelled", b"old")

    async def main() -> None:
        appended = await other.open_async(f"{place}/appended", "ab")
        await appended.write(b"line")
        for name in ("new", "closed"):
            file = await other.open_async(f"{place}/{name}", "wb")
            await file.write(b"new")
        await file.close()
        # An open whose result came too late.
        await other._run(lambda core: replacement.open_file(core, f"{place}/cancelled", "wb", parents=False))

    asyncio.run(main())
    other.client.close()
    names = ("appended", "new", "closed", "cancelled")
    assert [threefs.cat_file(f"{place}/{name}") for name in names] == [b"line", b"new", b"new", b"old"]
    assert sorted(map(basename, threefs.ls(place, detail=False))) == sorted(names)
