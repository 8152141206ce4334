from pathlib import Path

import pytest

from threefs.errors import Corrupt, NoSpace, Unavailable
from threefs.kv.rocksdb_store import error_of, open_store


def test_a_store_keeps_what_was_written_and_is_open_once(tmp_path: Path) -> None:
    store = open_store(tmp_path / "deep" / "store")
    store.put(b"key", b"value")
    with pytest.raises(Unavailable, match="in use"):
        open_store(tmp_path / "deep" / "store")
    store.close()
    again = open_store(tmp_path / "deep" / "store")
    assert again.get(b"key") == b"value"
    again.close()


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("IO error: No space left on device: While appending to file: 000004.log", NoSpace),
        ("IO error: While appending to file: /srv/meta/kv/000004.log: Disk quota exceeded", NoSpace),
        ("Corruption: block checksum mismatch", Corrupt),
        ("IO error: While lock file: /x/LOCK: Resource temporarily unavailable", Unavailable),
        ("IO error: While fdatasync: /srv/meta/kv/000004.log: Input/output error", Unavailable),
        ("Corruption: block checksum mismatch in /srv/meta/kv/000007.sst offset 0 size 4096", Corrupt),
    ],
)
def test_errors_of_the_store_are_distinguished_and_show_no_path_of_the_server(text: str, kind: type[Exception]) -> None:
    error = error_of(Exception(text), "the table of a service")
    assert type(error) is kind and "the table of a service" in str(error) and "/srv" not in str(error)
