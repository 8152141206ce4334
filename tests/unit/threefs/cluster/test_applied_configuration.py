from typing import Any

import pytest

from threefs import configuration
from threefs.cluster.applied_configuration import AppliedConfiguration, own_values
from threefs.configuration import KEYS, NOTHING_SET, Configuration, Role, Source
from threefs.errors import InvalidSettings, ThreefsError
from threefs.wire import manager_pb2 as pb


def made(version: int, **texts: str) -> Configuration:
    return Configuration(version, 1000 + version, texts)


def storage(**own: Any) -> AppliedConfiguration:
    values = AppliedConfiguration(Role.STORAGE, own)
    values.on_change([name for name, key in KEYS.items() if Role.STORAGE in key.roles], lambda: None)
    return values


def reported(values: AppliedConfiguration) -> list[tuple[str, str, pb.KeyState]]:
    return [(key.name, key.value, key.state) for key in values.report.keys]


def test_the_file_wins_over_the_cluster_and_the_cluster_over_the_default() -> None:
    values = storage(scrub_bytes_per_s=7)
    assert values.integer("scrub_bytes_per_s") == 7 and values.integer("cached_records") == 32_768
    values.begin(made(1, scrub_bytes_per_s="1000", cached_records="500"))
    assert values.integer("scrub_bytes_per_s") == 7 and values.integer("cached_records") == 500
    assert values.number("scrub_interval_s") == 604_800.0 and values.word("log_level") == "info"
    assert reported(values) == [("scrub_bytes_per_s", "7", pb.OWN_FILE)]
    assert (values.report.version, values.report.made_ns) == (1, 1001)


def test_a_running_process_takes_new_values_once_for_each_part() -> None:
    values, calls = AppliedConfiguration(Role.STORAGE, {}), []
    values.on_change(["deferred_bytes", "inline_bytes"], lambda: calls.append("engine"))
    values.on_change(["log_level"], lambda: calls.append("log"))
    values.begin(NOTHING_SET)
    assert calls == []
    values.adopt(made(1, deferred_bytes="4096", inline_bytes="0"))
    assert calls == ["engine"] and values.integer("inline_bytes") == 0
    values.adopt(made(2, deferred_bytes="4096", inline_bytes="0", log_level="debug", nearly_full_ratio="0.5"))
    assert calls == ["engine", "log"] and values.word("log_level") == "debug"
    values.adopt(made(3))
    assert calls == ["engine", "log", "engine", "log"] and values.integer("deferred_bytes") == 64 << 10
    assert reported(values) == []


def test_what_needs_a_restart_waits_for_it() -> None:
    values = storage()
    values.begin(made(1, ballast_bytes="0"))
    assert values.integer("ballast_bytes") == 0, "the process starts with it"
    values.adopt(made(2, ballast_bytes="1048576"))
    assert values.integer("ballast_bytes") == 0
    assert reported(values) == [("ballast_bytes", "0", pb.AWAITS_RESTART)]
    values.adopt(made(3, ballast_bytes="0"))
    assert reported(values) == []


def test_a_value_that_cannot_be_applied_leaves_the_one_before_in_force() -> None:
    values, told = AppliedConfiguration(Role.STORAGE, {}), []
    values.on_adopted = lambda: told.append(values.report.version)

    def fail() -> None:
        if values.integer("deferred_changes") == 3:
            raise ThreefsError("three is too few")

    values.on_change(["deferred_changes"], fail)
    values.begin(made(1, deferred_changes="9"))
    values.adopt(made(2, deferred_changes="3"))
    assert values.integer("deferred_changes") == 9
    (refusal,) = values.report.keys
    assert (refusal.name, refusal.value, refusal.state) == ("deferred_changes", "9", pb.REFUSED)
    assert "three is too few" in refusal.reason
    values.adopt(made(3, deferred_changes="4"))
    assert values.integer("deferred_changes") == 4 and reported(values) == []
    assert told == [1, 2, 3]


def test_what_this_release_does_not_take_is_refused_and_the_rest_is_taken() -> None:
    values = storage()
    values.begin(made(1, full_ratio="7", of_a_later_release="1", cached_records="10"))
    assert values.integer("cached_records") == 10 and values.number("full_ratio") == 0.98
    assert reported(values) == [("full_ratio", "0.98", pb.REFUSED), ("of_a_later_release", "", pb.REFUSED)]
    assert "from 0.5 to 1" in values.report.keys[0].reason and "does not know the key" in values.report.keys[1].reason


def test_values_for_other_programs_are_not_its_business() -> None:
    values = AppliedConfiguration(Role.META, {})
    values.on_change(["removals_at_once"], lambda: None)
    values.begin(made(1, full_ratio="7", scrub_bytes_per_s="1", removals_at_once="3"))
    assert values.integer("removals_at_once") == 3 and reported(values) == []


def test_a_settings_file_has_the_same_bounds() -> None:
    with pytest.raises(InvalidSettings, match=r"the settings file: full_ratio is from 0.5 to 1, not 0.1"):
        storage(full_ratio=0.1)


def test_own_values_are_those_that_the_file_says() -> None:
    class Settings:
        full_ratio = 0.9
        cached_records = None
        port = 1

    assert own_values(Settings()) == {"full_ratio": 0.9}


def test_what_is_in_force_elsewhere_follows_from_its_report() -> None:
    newest = made(4, scrub_bytes_per_s="1000", ballast_bytes="0")
    values = storage(full_ratio=0.9)
    values.begin(made(3, scrub_bytes_per_s="500"))
    found = configuration.in_force("scrub_bytes_per_s", newest, values.report)
    assert found == (None, Source.CLUSTER, pb.KEY_STATE_UNSPECIFIED), "it has another version"
    values.adopt(newest)
    for name, value, source, state in (
        ("scrub_bytes_per_s", 1000, Source.CLUSTER, pb.KEY_STATE_UNSPECIFIED),
        ("full_ratio", 0.9, Source.FILE, pb.OWN_FILE),
        ("ballast_bytes", 16 << 20, Source.CLUSTER, pb.AWAITS_RESTART),
        ("cached_records", 32_768, Source.DEFAULT, pb.KEY_STATE_UNSPECIFIED),
    ):
        assert configuration.in_force(name, newest, values.report) == (value, source, state)
