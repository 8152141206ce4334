import json
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from threefs_data.prepare import documents, sources
from threefs_data.prepare.documents import DocumentReader
from threefs_data.prepare.splits import cut

from tests.harness.local_files import LocalFiles
from threefs.errors import Corrupt, FileTooLarge, InvalidArgument, NotSupported, ThreefsError

NOWHERE = LocalFiles("/nonexistent")


def read(path: Path, reader: DocumentReader | None = None, split_bytes: int = 1 << 30) -> list[bytes]:
    reader = reader or DocumentReader()
    return [
        document.data
        for split in cut(sources.find(NOWHERE, [str(path)]), split_bytes, reader.is_whole)
        for piece in split.pieces
        for document in reader.read(NOWHERE, piece)
    ]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("documents")


@given(st.lists(st.sampled_from([b"", b"a", b"bc", b"\n", b"\n", b"\r\n", b"long line of text"])), st.integers(1, 20))
def test_lines_are_the_same_wherever_a_file_is_cut(directory: Path, parts: list[bytes], split_bytes: int) -> None:
    path = directory / "a.txt"
    path.write_bytes(b"".join(parts))
    lines = [line.removesuffix(b"\r") for line in b"".join(parts).split(b"\n")]
    assert read(path, split_bytes=split_bytes) == [line for line in lines if line]


def test_a_file_may_be_one_document(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"one\n\ntwo\n")
    assert read(tmp_path, DocumentReader(documents="files"), split_bytes=2) == [b"one\n\ntwo\n"]


def test_a_field_of_json_lines(tmp_path: Path) -> None:
    rows = [{"text": "é one"}, {"body": "x", "text": ""}, {"text": "two\nlines"}]
    (tmp_path / "a.jsonl").write_text("\n\n".join(map(json.dumps, rows)))
    expected = ["é one".encode(), b"", b"two\nlines"]
    for split_bytes in (1, 5, 1000):
        assert read(tmp_path / "a.jsonl", split_bytes=split_bytes) == expected
    with pytest.raises(
        Corrupt, match=r"a\.jsonl, line 1 is not an object with the field 'body'; it has 'text': choose one by --field"
    ):
        read(tmp_path / "a.jsonl", DocumentReader(field="body"))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{", "line 3 is not JSON"),
        (b"\xff", "line 3 is not JSON"),
        (b"[" * 100_000, "line 3 is not JSON"),
        (b"[1]", "line 3 is not an object with the field 'text'"),
        (b'{"text": 5}', "line 3: the field 'text' is not a text"),
        (b'{"text": null}', "line 3: the field 'text' is not a text"),
        (b'{"text": "\\ud800"}', "line 3: the field 'text' is not Unicode"),
    ],
)
@pytest.mark.parametrize("split_bytes", [1, 7, 1 << 30])
def test_an_error_names_the_line(tmp_path: Path, line: bytes, message: str, split_bytes: int) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "one"}\n\n' + line + b'\n{"text": "four"}\n')
    with pytest.raises(Corrupt, match=rf"a\.jsonl, {message}"):
        read(path, split_bytes=split_bytes)


def test_documents_have_a_limit(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"12345\r\n123456\r\n")
    with pytest.raises(FileTooLarge, match=r"a\.txt, line 2: the document has more than 5 bytes"):
        read(path, DocumentReader(max_bytes=5))
    assert read(path, DocumentReader(max_bytes=6)) == [b"12345", b"123456"]
    with pytest.raises(FileTooLarge, match=r"a\.txt: the document has more than 5 bytes"):
        read(path, DocumentReader(documents="files", max_bytes=5))


@pytest.mark.parametrize("wrong", [{"documents": "words"}, {"max_bytes": 0}])
def test_impossible_readers_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        DocumentReader(**wrong)


class TestParquet:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed (make ml-venv)")
        from pyarrow import parquet

        table = pyarrow.table(
            {"number": list(range(1000)), "text": [f"row {n}" for n in range(1000)], "gaps": ["a", None] * 500}
        )
        parquet.write_table(table, tmp_path / "a.parquet", row_group_size=64)
        return tmp_path / "a.parquet"

    @pytest.mark.slow
    @pytest.mark.parametrize("split_bytes", [1, 100, 5000, 1 << 30])
    def test_each_row_is_read_once(self, path: Path, split_bytes: int) -> None:
        assert read(path, split_bytes=split_bytes) == [b"row %d" % number for number in range(1000)]

    def test_errors_name_the_column_and_the_row(self, path: Path) -> None:
        for field in ("body", "number"):
            with pytest.raises(InvalidArgument, match=rf"a\.parquet has no column '{field}' of texts; it has number"):
                read(path, DocumentReader(field=field))
        with pytest.raises(Corrupt, match=r"a\.parquet, row 2: the column 'gaps' is empty"):
            read(path, DocumentReader(field="gaps"))
        with pytest.raises(FileTooLarge, match=r"a\.parquet, row 11: "):
            read(path, DocumentReader(max_bytes=5))

    def test_a_text_that_many_rows_name_takes_no_more_memory(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A file of some KiB may stand for any number of bytes."""
        pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed (make ml-venv)")
        from pyarrow import parquet

        path, text = tmp_path / "a.parquet", "x" * (1 << 20)
        table = pyarrow.table({"text": [text] * 256})
        parquet.write_table(table, path, compression="zstd", dictionary_pagesize_limit=1 << 30)
        del table
        assert path.stat().st_size < 10_000
        monkeypatch.setattr(documents, "MAX_COLUMN_BYTES", 8 << 20)
        (source,) = sources.find(NOWHERE, [str(path)])
        before, most, count = pyarrow.total_allocated_bytes(), 0, 0
        for piece in next(iter(cut([source], 1 << 30, DocumentReader().is_whole))).pieces:
            for document in DocumentReader().read(NOWHERE, piece):
                assert len(document.data) == len(text)
                most, count = max(most, pyarrow.total_allocated_bytes() - before), count + 1
        assert count == 256 and most < 64 << 20

    @pytest.mark.parametrize("place", ["start", "middle", "end"])
    def test_damage_is_an_error_in_words(self, path: Path, place: str) -> None:
        content = bytearray(path.read_bytes())
        at = {"start": 4, "middle": len(content) // 2, "end": len(content) - 300}[place]
        content[at : at + 200] = os.urandom(200) if place == "start" else b"\xff" * 200
        path.write_bytes(content)
        try:
            assert len(read(path)) <= 1000, "without checksums of pages, Parquet does not notice all damage"
        except ThreefsError as error:
            assert "a.parquet" in str(error)

    def test_a_file_that_is_none(self, path: Path) -> None:
        path.write_bytes(b"nothing of the kind")
        with pytest.raises(Corrupt, match=r"a\.parquet cannot be read as Parquet"):
            read(path)


def test_without_pyarrow(tmp_path: Path) -> None:
    if find_spec("pyarrow"):
        pytest.skip("pyarrow is installed")
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    with pytest.raises(NotSupported, match="pip install"):
        read(tmp_path / "a.parquet")
