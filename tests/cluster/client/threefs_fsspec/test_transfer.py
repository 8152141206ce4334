import io
import random
from pathlib import Path

import pytest
from fsspec.callbacks import Callback
from threefs_fsspec import ThreefsFileSystem, transfer

SIZES = (0, 1, transfer.WHOLE_BYTES, transfer.WHOLE_BYTES + 1, 2 * transfer.PIECE_BYTES + 7)


@pytest.mark.parametrize("size", SIZES)
def test_a_file_goes_in_and_out_as_it_is(threefs: ThreefsFileSystem, place: str, tmp_path: Path, size: int) -> None:
    content = random.Random(size).randbytes(size)
    (tmp_path / "in").write_bytes(content)
    sent, received = Callback(), Callback()
    threefs.put_file(str(tmp_path / "in"), f"{place}/a", callback=sent)
    assert threefs.cat_file(f"{place}/a") == content
    threefs.get_file(f"{place}/a", str(tmp_path / "out"), callback=received)
    assert (tmp_path / "out").read_bytes() == content
    assert (sent.size, sent.value) == (received.size, received.value) == (size, size)
    memory = io.BytesIO()
    threefs.get_file(f"{place}/a", memory)
    assert memory.getvalue() == content
    with pytest.raises(FileExistsError):
        threefs.put_file(str(tmp_path / "in"), f"{place}/a", mode="create")
    (tmp_path / "in").write_bytes(b"other")
    threefs.put_file(str(tmp_path / "in"), f"{place}/a")
    assert threefs.cat_file(f"{place}/a") == b"other"


def test_a_tree_goes_in_and_out(threefs: ThreefsFileSystem, place: str, tmp_path: Path) -> None:
    (tmp_path / "in" / "deep" / "empty").mkdir(parents=True)
    for number in range(100):
        (tmp_path / "in" / "deep" / str(number)).write_text(str(number))
    threefs.put(str(tmp_path / "in"), f"{place}/tree", recursive=True)
    assert threefs.isdir(f"{place}/tree/deep/empty")
    threefs.get(f"{place}/tree", str(tmp_path / "out"), recursive=True)
    found = {path.relative_to(tmp_path / "out") for path in (tmp_path / "out").rglob("*")}
    assert found == {path.relative_to(tmp_path / "in") for path in (tmp_path / "in").rglob("*")}
    assert (tmp_path / "out" / "deep" / "42").read_text() == "42"


def test_what_cannot_be_read_leaves_the_local_file(threefs: ThreefsFileSystem, place: str, tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("precious")
    for name in ("kept", "new"):
        with pytest.raises(FileNotFoundError):
            threefs.get_file(f"{place}/none", str(tmp_path / name))
    assert [path.name for path in tmp_path.iterdir()] == ["kept"] and (tmp_path / "kept").read_text() == "precious"
