import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threefs import configuration
from threefs.configuration import KEYS, Configuration, Key, Kind, Role, Value, find, parse, shown, text_of
from threefs.errors import InvalidArgument


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS.keys())
def test_each_key_has_a_meaning_programs_and_a_default_within_its_bounds(key: Key) -> None:
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", key.name)
    assert key.meaning and key.roles <= set(Role) and key.roles
    assert configuration.check(key, key.default) == key.default
    assert isinstance(key.default, str) is (key.kind is Kind.WORD)
    assert isinstance(key.default, float) is (key.kind in (Kind.TIME, Kind.RATIO))


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS.keys())
def test_a_value_is_read_as_it_is_stored_and_as_it_is_shown(key: Key) -> None:
    values: list[Value] = list(key.words) if key.words else [key.default, key.least, key.most]
    for value in values:
        for text in (text_of(value), shown(key, value)):
            found = parse(key, text)
            assert found == value and isinstance(found, type(key.default)), text


@given(st.sampled_from([key for key in KEYS.values() if not key.words]), st.floats(0, 1), st.booleans())
def test_every_value_within_the_bounds_is_stored_exactly(key: Key, place: float, is_whole: bool) -> None:
    value: Value = min(key.most, key.least + place * (key.most - key.least))
    if is_whole or not isinstance(key.default, float):
        value = type(key.default)(int(value) or key.least)
    assert parse(key, text_of(configuration.check(key, value))) == value


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("scrub_bytes_per_s", "64MiB", 64 << 20),
        ("scrub_bytes_per_s", "64M/s", 64 << 20),
        ("scrub_bytes_per_s", "1000", 1000),
        ("scrub_interval_s", "14d", 14 * 86_400.0),
        ("scrub_interval_s", "90", 90.0),
        ("fold_interval_s", "250ms", 0.25),
        ("nearly_full_ratio", "80%", 0.8),
        ("nearly_full_ratio", "0.8", 0.8),
        ("deferred_bytes", "0", 0),
        ("log_level", "debug", "debug"),
    ],
)
def test_people_write_values_with_units(name: str, text: str, value: Value) -> None:
    assert parse(find(name), text) == value


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("scrub_bytes_per_s", "fast", "scrub_bytes_per_s must be bytes per second, for example 32 MiB/s, not 'fast'"),
        ("scrub_bytes_per_s", "-1", "must be bytes per second"),
        ("scrub_bytes_per_s", "0", "scrub_bytes_per_s is from 1 B/s to 1 TiB/s, not 0 B/s"),
        ("deferred_bytes", "2MiB", "deferred_bytes is from 0 B to 1 MiB, not 2 MiB"),
        ("scrub_interval_s", "2", ""),
        ("scrub_interval_s", "0.5s", "scrub_interval_s is from 1s to 366d, not 0.5s"),
        ("full_ratio", "98", "full_ratio is from 0.5 to 1, not 98"),
        ("full_ratio", "nan", "full_ratio is from 0.5 to 1, not nan"),
        ("full_ratio", "%", "full_ratio must be a share of 1"),
        ("removals_at_once", "1.5", "removals_at_once must be a whole number, for example 16, not '1.5'"),
        ("removals_at_once", "²", "must be a whole number"),
        ("removals_at_once", "1" * 5000, "must be a whole number"),
        ("deferred_bytes", "1" * 5000, "must be bytes"),
        ("log_level", "loud", "log_level must be debug, info, warning or error, not 'loud'"),
    ],
)
def test_what_is_no_value_is_refused_with_the_bounds(name: str, text: str, said: str) -> None:
    if not said:
        parse(find(name), text)
        return
    with pytest.raises(InvalidArgument) as error:
        parse(find(name), text)
    assert said in str(error.value)


def test_an_unknown_key_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(InvalidArgument, match=r"no key 'scrub_rate': did you mean scrub_bytes_per_s\?|scrub_"):
        find("scrub_rate")
    with pytest.raises(InvalidArgument, match="did you mean full_ratio"):
        find("ful_ratio")
    with pytest.raises(InvalidArgument, match="`threefs config get` lists the keys"):
        find("zzzzzz")


def test_changes_are_checked_together_before_any_of_them_counts() -> None:
    set_before = {"full_ratio": "0.9"}
    assert configuration.changed(set_before, {"scrub_bytes_per_s": "1M"}) == {
        "full_ratio": "0.9",
        "scrub_bytes_per_s": "1048576",
    }
    assert configuration.changed(set_before, {"full_ratio": None}) == {}
    with pytest.raises(InvalidArgument, match=r"nearly_full_ratio \(0.95\) must be below full_ratio \(0.9\)"):
        configuration.changed(set_before, {"nearly_full_ratio": "95%"})
    both = {"nearly_full_ratio": "95%", "full_ratio": "99%"}
    assert configuration.changed(set_before, both) == {"full_ratio": "0.99", "nearly_full_ratio": "0.95"}
    assert set_before == {"full_ratio": "0.9"}


def test_a_value_of_a_later_release_is_kept() -> None:
    later = {"of_a_later_release": "1"}
    assert configuration.changed(later, {"log_level": "debug"}) == {"log_level": "debug", "of_a_later_release": "1"}


def test_a_value_that_is_out_of_bounds_only_here_keeps_no_other_key_from_a_change() -> None:
    """A later release has other bounds. Its key was named in the error about the one that was set."""
    later = {"full_ratio": "1.5"}
    assert configuration.changed(later, {"log_level": "debug"}) == {"full_ratio": "1.5", "log_level": "debug"}
    with pytest.raises(InvalidArgument, match=r"nearly_full_ratio \(0.99\) must be below"):
        configuration.changed(later, {"nearly_full_ratio": "0.99"})  # processes of this release have the default
    with pytest.raises(InvalidArgument, match="full_ratio is from"):
        configuration.changed({}, later)


def test_nor_do_two_values_that_go_together_only_in_a_later_release() -> None:
    later = {"full_ratio": "1.5", "nearly_full_ratio": "0.99"}
    assert configuration.changed(later, {"log_level": "debug"}) == {**later, "log_level": "debug"}
    assert configuration.changed(later, {"nearly_full_ratio": "0.9"}) == {**later, "nearly_full_ratio": "0.9"}
    with pytest.raises(InvalidArgument, match=r"nearly_full_ratio \(0.99\) must be below full_ratio \(0.98\)"):
        configuration.changed(later, {"full_ratio": None})  # of every release now


def test_a_value_of_a_later_release_can_be_taken_back() -> None:
    """Else every process of this release refuses it, and health warns of that, for ever."""
    assert configuration.changed({"of_a_later_release": "1", "log_level": "debug"}, {"of_a_later_release": None}) == {
        "log_level": "debug"
    }
    with pytest.raises(InvalidArgument, match="no key 'of_a_later_release'"):
        configuration.changed({"of_a_later_release": "1"}, {"of_a_later_release": "2"})
    with pytest.raises(InvalidArgument, match="no key 'of_no_release'"):
        configuration.changed({"of_a_later_release": "1"}, {"of_no_release": None})


def test_differences_name_what_was_and_what_is() -> None:
    before, after = {"full_ratio": "0.9", "log_level": "info"}, {"log_level": "debug", "deferred_bytes": "0"}
    assert configuration.differences(before, after) == {
        "deferred_bytes": (None, "0"),
        "full_ratio": ("0.9", None),
        "log_level": ("info", "debug"),
    }
    assert configuration.differences(before, before) == {}


def test_it_is_the_same_after_the_wire() -> None:
    made = Configuration(7, 1_700_000_000_000_000_000, {"full_ratio": "0.9", "log_level": "debug"})
    assert configuration.from_wire(configuration.to_wire(made)) == made
    assert configuration.from_wire(configuration.to_wire(configuration.NOTHING_SET)) == configuration.NOTHING_SET


def test_the_page_has_the_table() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "configuration.md").read_text(encoding="utf-8")
    for key in KEYS.values():
        bounds = ", ".join(key.words) or f"{shown(key, key.least)}, {shown(key, key.most)}"
        programs = ", ".join(sorted(role.value for role in key.roles))
        row = f"| `{key.name}` | {programs} | {shown(key, key.default)} | {bounds} | {key.meaning} |"
        assert row in page.splitlines(), row
    waiting = [f"`{name}`" for name, key in KEYS.items() if not key.is_hot]
    assert f"Takes effect with a restart: {', '.join(waiting)}." in page
