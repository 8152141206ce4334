import os
import stat
from pathlib import Path

import pytest
from threefs_cli import cluster_file, cluster_place
from threefs_cli.cluster_file import Plan

from tests.harness.other_user import NOBODY, needs_root
from threefs.errors import AlreadyExists, NotADirectory, PermissionDenied, Unavailable


def test_a_new_place_is_made_and_an_open_one_is_closed(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    for place, mode in ((tmp_path / "new" / "cluster", 0o700), (tmp_path / "open", 0o750)):
        with cluster_place.locked(place):
            assert stat.S_IMODE(place.stat().st_mode) == mode
            with pytest.raises(Unavailable, match="another threefs command"), cluster_place.locked(place):
                pass
        with cluster_place.locked(place):
            pass


def test_what_holds_something_else_is_no_place(tmp_path: Path) -> None:
    (tmp_path / "photo").touch()
    with pytest.raises(AlreadyExists, match="is not empty and holds no cluster"):
        cluster_place.check(tmp_path)
    with pytest.raises(NotADirectory, match=f"{tmp_path}/photo is a file"):
        cluster_place.check(tmp_path / "photo" / "below")
    cluster_file.save(tmp_path, cluster_file.fresh(Plan()))
    cluster_place.check(tmp_path)


@needs_root
def test_the_place_of_another_user_is_refused(tmp_path: Path) -> None:
    """That user could choose later which programs this one starts, and which processes it kills."""
    place = tmp_path / "small"
    place.mkdir(mode=0o700)
    os.chown(place, NOBODY, NOBODY)
    for _ in range(2):
        refused = pytest.raises(PermissionDenied, match=f"{place} belongs to user {NOBODY}.*run this as that user")
        with refused, cluster_place.locked(place):
            pass
        assert place.stat().st_uid == NOBODY and not (place / "lock").exists()
        cluster_file.save(place, cluster_file.fresh(Plan()))
    os.chown(place, os.geteuid(), 0)
    cluster_place.check(place)
    os.chown(place / cluster_file.NAME, NOBODY, NOBODY)
    with pytest.raises(PermissionDenied, match=f"cluster.json belongs to user {NOBODY}"):
        cluster_place.check(place)
    assert cluster_file.load(place) is not None, "it may be looked at"
