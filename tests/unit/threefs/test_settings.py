from dataclasses import dataclass, field
from pathlib import Path

import pytest

from threefs import settings
from threefs.errors import InvalidSettings


@dataclass(frozen=True)
class Disk:
    path: Path
    reserve_bytes: int = 0


@dataclass(frozen=True)
class Program:
    port: int
    name: str = "x"
    wait_s: float = 1.0
    disk: Disk = field(default_factory=lambda: Disk(Path("d")))
    addresses: tuple[str, ...] = ()


def load(tmp_path: Path, text: str) -> Program:
    file = tmp_path / "program.toml"
    file.write_text(text)
    return settings.load(Program, file)


def test_values_defaults_tables_and_lists(tmp_path: Path) -> None:
    loaded = load(tmp_path, 'port = 7\nwait_s = 2\naddresses = ["a", "b"]\n[disk]\npath = "/d"\n')
    assert loaded == Program(7, wait_s=2.0, disk=Disk(Path("/d")), addresses=("a", "b"))
    assert isinstance(loaded.wait_s, float)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("port = 7\nprot = 8", "unknown setting 'prot'"),
        ("port = 7\n[disk]\npath = 'd'\nsize = 1", "disk: unknown setting 'size'"),
        ("name = 'x'", "'port' is missing"),
        ("port = '7'", "port must be int"),
        ("port = true", "port must be int"),
        ("port = 7\naddresses = 'a'", "addresses must be a list"),
        ("port = 7\naddresses = [1]", r"addresses\[0\] must be str"),
        ("port = 7\ndisk = 3", "disk must be a table"),
        ("port = = 7", "not valid TOML"),
    ],
)
@pytest.mark.slow
def test_a_mistake_is_named(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(InvalidSettings, match=says) as caught:
        load(tmp_path, text)
    assert "program.toml" in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match=r"nowhere\.toml does not exist"):
        settings.load(Program, tmp_path / "nowhere.toml")


def test_bytes_that_are_no_text_are_no_settings(tmp_path: Path) -> None:
    (tmp_path / "program.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidSettings, match="not valid TOML"):
        settings.load(Program, tmp_path / "program.toml")


def test_a_field_that_is_none_by_default_has_a_value_only_if_the_file_says_one(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Chosen:
        rate: float | None = None
        level: str | None = None

    file = tmp_path / "program.toml"
    file.write_text("rate = 3")
    assert settings.load(Chosen, file) == Chosen(rate=3.0)
    file.write_text("level = 3")
    with pytest.raises(InvalidSettings, match="level must be str, not 3"):
        settings.load(Chosen, file)
