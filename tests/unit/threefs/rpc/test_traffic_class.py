from pathlib import Path

import pytest

from threefs import settings
from threefs.errors import InvalidSettings
from threefs.rpc import methods, traffic_class
from threefs.rpc.methods import Method
from threefs.rpc.traffic_class import DEFAULT_DSCP, Dscp, TrafficClass


def test_each_class_has_a_mark_of_its_own() -> None:
    marks = [DEFAULT_DSCP.mark(traffic) for traffic in TrafficClass]
    assert len(set(marks)) == len({mark.dscp for mark in marks}) == len(TrafficClass)


def test_the_code_points_can_be_set_class_by_class() -> None:
    found = settings.from_table(Dscp, {"background": 8}, "x")
    assert found.mark(TrafficClass.BACKGROUND).dscp == 8
    assert found.mark(TrafficClass.DATA) == DEFAULT_DSCP.mark(TrafficClass.DATA)


@pytest.mark.parametrize("value", [-1, 64, True])
def test_what_is_no_code_point_is_named(value: int) -> None:
    with pytest.raises(InvalidSettings, match=r"dscp\.data .* 0 to 63"):
        Dscp(data=value)


def test_an_older_or_newer_peer_sends_data() -> None:
    assert traffic_class.of_number(0) is traffic_class.of_number(77) is TrafficClass.DATA
    assert [traffic_class.of_number(int(traffic)) for traffic in TrafficClass] == list(TrafficClass)


def test_the_class_of_a_method_fits_its_service() -> None:
    found = {str(method): method.traffic for method in vars(methods).values() if isinstance(method, Method)}
    assert {traffic for name, traffic in found.items() if name.startswith(("Meta.", "Manager."))} == {
        TrafficClass.METADATA
    }
    assert found["Storage.Read"] is found["Storage.Write"] is TrafficClass.DATA
    assert found["Storage.QueryVersion"] is TrafficClass.REPLICATION
    background = {name for name, traffic in found.items() if traffic is TrafficClass.BACKGROUND}
    assert background == {
        "Storage.Inventory",
        "Storage.SyncDone",
        "Storage.FetchChunk",
        "Storage.ScanChunks",
        "Backup.ReadSnapshot",
        "Backup.ReadLog",
    }


def test_the_settings_of_a_program_may_have_a_table_of_code_points(tmp_path: Path) -> None:
    from threefs_storage.settings import Settings

    path = tmp_path / "settings.toml"
    path.write_text(
        'node_id = 1\ndata_dir = "/d"\nmanager = "h:1"\ncontrol = "h:2"\n[dscp]\nbackground = 0\n', encoding="utf-8"
    )
    assert settings.load(Settings, path).dscp == Dscp(background=0)
