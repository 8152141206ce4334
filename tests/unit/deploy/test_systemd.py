"""The units are what systemd understands, and leave little open."""

import os
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
UNITS = ROOT / "deploy" / "systemd"
SERVICES = ("threefs-manager.service", "threefs-meta.service", "threefs-storage@.service")
BACKUP = "threefs-backup.service"
#: 0 is closed, 10 is open.
MOST_EXPOSED = 2.5


def need(program: str) -> None:
    if shutil.which(program) is None:
        print(f"skipped: {program} is not installed")
        pytest.skip(f"{program} is not installed")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A file system with the units and the programs that they start, for nobody to run."""
    need("systemd-analyze")
    units = tmp_path / "etc" / "systemd" / "system"
    units.mkdir(parents=True)
    for unit in UNITS.iterdir():
        name = unit.name.replace("@.", "@disk1.")
        programs = tmp_path / "bin"
        programs.mkdir(exist_ok=True)
        text = unit.read_text()
        for program in re.findall(r"ExecStart=(\S+)", text):
            (programs / Path(program).name).write_text("#!/bin/sh\n")
            (programs / Path(program).name).chmod(0o755)
            text = text.replace(program, str(programs / Path(program).name))
        (units / name).write_text(text)
    return units


def test_systemd_understands_them(root: Path) -> None:
    found = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *sorted(str(unit) for unit in root.iterdir())],
        capture_output=True,
        text=True,
    )
    own = [line for line in found.stderr.splitlines() if "threefs" in line]
    assert found.returncode == 0 and not own, found.stderr


@pytest.mark.parametrize("service", [*SERVICES, BACKUP])
def test_they_are_hardened(service: str, root: Path) -> None:
    unit = root / service.replace("@.", "@disk1.")
    found = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", str(unit)], capture_output=True, text=True
    )
    level = re.search(r"Overall exposure level.*?: ([0-9.]+)", found.stdout)
    assert level is not None, found.stdout + found.stderr
    assert float(level.group(1)) <= MOST_EXPOSED, found.stdout


def test_every_unit_is_looked_at() -> None:
    assert {unit.name for unit in UNITS.glob("*.service")} == {*SERVICES, BACKUP}


@pytest.mark.parametrize("unit", [*SERVICES[1:], BACKUP])
def test_the_manager_stops_last(unit: str) -> None:
    """systemd stops units in the reverse order of their start."""
    assert re.search(r"^After=.*\bthreefs-manager\.service\b", (UNITS / unit).read_text(), re.MULTILINE)


def test_the_backup_goes_to_a_disk_of_its_own() -> None:
    """Without it systemd would make the directory, on the disk whose loss it is made for."""
    text = (UNITS / BACKUP).read_text()
    directory = re.findall("^ExecStart=.* (/.*)$", text, re.MULTILINE)
    assert directory == re.findall(r"^ExecStartPre=\+/usr/bin/mountpoint -q (.*)$", text, re.MULTILINE)
    assert directory == re.findall("^ReadWritePaths=(.*)$", text, re.MULTILINE)
    for line in ("Type=notify", "Restart=always", "User=threefs", "ProtectSystem=strict", "EnvironmentFile=/etc"):
        assert f"\n{line}" in text, line


@pytest.mark.parametrize(
    ("service", "directory", "mount"),
    [
        ("threefs-storage@disk1.service", "/srv/threefs/disk1", "srv-threefs-disk1.mount"),
        (BACKUP, "/var/lib/threefs/backup", "var-lib-threefs-backup.mount"),
    ],
)
def test_a_disk_that_comes_late_is_mounted_by_the_next_start(
    service: str, directory: str, mount: str, root: Path
) -> None:
    """A unit that requires the mount, also because of StateDirectory=, fails by its dependency in a boot without the
    disk, and systemd never starts such a one again."""
    loaded = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(root / service)],
        capture_output=True,
        text=True,
        env={**os.environ, "SYSTEMD_LOG_LEVEL": "debug"},
    ).stdout
    unit = loaded[loaded.index(f"-> Unit {service}:") :].partition("\n\t-> Unit ")[0]
    assert f"RequiresMountsFor: {directory} " not in unit and f"Requires: {mount} " not in unit, unit
    assert f"\tWants: {mount} " in unit and f"\tAfter: {mount} " in unit, unit


def test_the_backup_answers_prometheus_if_its_file_names_a_port() -> None:
    """The scrape configuration has a job for it. Its file overrides the default, which is no port."""
    text = (UNITS / BACKUP).read_text()
    (variable,) = re.findall(r"^ExecStart=.* --metrics-port \$\{(\w+)\} ", text, re.MULTILINE)
    assert f"\nEnvironment={variable}=0\n" in text


@pytest.mark.parametrize("service", SERVICES)
def test_they_are_watched_and_come_back(service: str) -> None:
    text = (UNITS / service).read_text()
    for line in ("Type=notify", "Restart=always", "WatchdogSec=30", "User=threefs"):
        assert f"\n{line}\n" in text, line


@pytest.mark.parametrize("service", [*SERVICES, BACKUP])
def test_the_target_stops_them_and_starts_them_again(service: str) -> None:
    text = (UNITS / service).read_text()
    assert "\nPartOf=threefs.target\n" in text
    assert re.search(r"^WantedBy=.*\bthreefs\.target$", text, re.MULTILINE)


def test_the_page_about_removing_disables_all_of_them(tmp_path: Path) -> None:
    """`systemctl disable` takes no pattern, and says that only on standard error. What it leaves are links of targets
    to units that are gone."""
    need("systemctl")
    units = tmp_path / "etc" / "systemd" / "system"
    shutil.copytree(UNITS, units)
    disks = ("threefs-storage@disk1", "threefs-storage@disk2")
    enable(tmp_path, "enable", "threefs.target", *disks, *(name for name in (*SERVICES, BACKUP) if "@" not in name))
    assert any(path.is_symlink() for path in units.rglob("threefs-storage@disk2*")), "it was enabled"
    (command,) = re.findall("^    systemctl disable (.*)$", (ROOT / "docs" / "uninstall.md").read_text(), re.MULTILINE)
    enable(tmp_path, "disable", *shlex.split(command))
    assert not [path for path in units.rglob("threefs*") if path.is_symlink()]


def enable(root: Path, verb: str, *units: str) -> None:
    """`systemctl enable` or `disable`, of a machine that does not run."""
    subprocess.run(["systemctl", f"--root={root}", verb, *units], check=True, capture_output=True)


@pytest.mark.parametrize(
    ("service", "example"), list(zip(SERVICES, ("manager.toml", "meta.toml", "storage.toml"), strict=True))
)
def test_they_may_write_where_the_example_settings_keep_data(service: str, example: str) -> None:
    """Everything else is read-only for them."""
    text = (UNITS / service).read_text().replace("%i", "disk1")
    data = tomllib.loads((UNITS.parent / "settings" / example).read_text())["data_dir"]
    states = [f"/var/lib/{name}" for name in re.findall("^StateDirectory=(.*)$", text, re.MULTILINE)]
    assert "ProtectSystem=strict" in text
    assert data in states + re.findall("^ReadWritePaths=(.*)$", text, re.MULTILINE)
