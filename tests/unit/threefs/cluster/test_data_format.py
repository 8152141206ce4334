"""An older version refuses the data of a newer one."""

from pathlib import Path

import pytest
from threefs_storage.engine import chunk_record as chunk_records

from threefs.cluster import data_format
from threefs.cluster.data_format import DATA_FORMAT, FILE_NAME, claim
from threefs.errors import StrangeStore
from threefs.kv import records as kv_records


def test_a_change_of_a_stored_format_raises_the_number() -> None:
    formats = (chunk_records._FORMAT, kv_records.FORMAT)
    assert (DATA_FORMAT, *formats) == (2, 4, 1), "raise DATA_FORMAT, and then these numbers"


def test_the_format_is_noted_and_accepted_again(tmp_path: Path) -> None:
    for _ in range(2):
        claim(tmp_path)
        assert int((tmp_path / FILE_NAME).read_text()) == DATA_FORMAT


def test_data_of_a_newer_version_are_refused_and_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as newer:
        newer.setattr(data_format, "DATA_FORMAT", DATA_FORMAT + 1)
        claim(tmp_path)
    before = (tmp_path / FILE_NAME).read_bytes()
    with pytest.raises(StrangeStore, match=f"in format {DATA_FORMAT + 1}; .* up to {DATA_FORMAT}. Nothing was changed"):
        claim(tmp_path)
    assert (tmp_path / FILE_NAME).read_bytes() == before


def test_data_of_an_older_version_are_taken_over(tmp_path: Path) -> None:
    for before in (b"0\n", b"nonsense"):
        (tmp_path / FILE_NAME).write_bytes(before)
        claim(tmp_path)
        assert int((tmp_path / FILE_NAME).read_text()) == DATA_FORMAT
