from pathlib import Path

import pytest
from threefs_bench.load import job_file

from threefs.errors import InvalidArgument

TEXT = """
; a job file as fio has it
[global]
size=1m        ; of each process
bs = 4k
# a comment
time_based
runtime=5

[reader]
rw=randread
numjobs=2

[global]
bs=64k
[writer]
stonewall
rw=write
"""


def test_sections_inherit_what_is_global_before_them() -> None:
    reader, writer = job_file.parse_text(TEXT, "x.fio")
    assert (reader.name, reader["rw"], reader["bs"].read, reader["size"]) == ("reader", "randread", 4096, 1 << 20)
    assert (writer.name, writer["rw"], writer["bs"].read) == ("writer", "write", 65536)
    assert reader["time_based"] and reader["numjobs"] == 2 and writer["numjobs"] == 1 and writer["stonewall"]
    assert dict(reader.given) == {"name": "reader", "rw": "randread", "numjobs": "2"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[a]\nsiz=1m", "x.fio:2: there is no option 'siz'; the nearest one is 'size'"),
        ("[a]\nsize", "x.fio:2: option size needs a value"),
        ("[a\nsize=1m", "x.fio:1: .*is not a section"),
        ("[a]\nsize=1m\nbs=big\n[b]", "x.fio:4: bs=big: 'big' is not a size"),
        ("size=1m", "x.fio: it has no job"),
        ("[a]\nrw=read", "x.fio: job 'a': size or filesize is missing"),
    ],
)
def test_what_is_wrong_names_its_line(text: str, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        job_file.parse_text(text, "x.fio")


def test_options_on_the_command_line_hold_for_the_jobs_behind_them() -> None:
    found = job_file.parse_arguments(
        [
            "--size=1m",
            "--rw",
            "randread",
            "--name=a",
            "--bs=8k",
            "--name=b",
            "--time_based",
            "--runtime=1",
            "--eta=never",
        ]
    )
    a, b = found.jobs
    assert (a.name, a["bs"].read, a["rw"], a["time_based"]) == ("a", 8192, "randread", False)
    assert (b.name, b["bs"].read, b["size"], b["time_based"]) == ("b", 4096, 1 << 20, True)
    assert dict(a.inherited) == {"size": "1m", "rw": "randread"} and found.run == {"eta": "never"}


def test_name_global_is_a_section_too() -> None:
    (job,) = job_file.parse_arguments(["--name=global", "--size=2m", "--name=a", "--rw=write"]).jobs
    assert job["size"] == 2 << 20 and job.writes


def test_files_take_the_options_before_them(tmp_path: Path) -> None:
    file = tmp_path / "x.fio"
    file.write_text(TEXT)
    found = job_file.parse_arguments(["--directory=/d", "--output-format=json", str(file), "--name=c", "--size=1m"])
    assert [job.name for job in found.jobs] == ["reader", "writer", "c"]
    assert {job["directory"] for job in found.jobs} == {"/d"} and found.run == {"output-format": "json"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--nam=a"], "the nearest one is 'name'"),
        (["--ouput=x"], "the nearest one is 'output'"),
        (["-x"], "all options here begin with --"),
        (["--name=a", "--size"], "option --size needs a value"),
    ],
)
def test_bad_arguments(arguments: list[str], said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        job_file.parse_arguments(arguments)


def test_options_of_the_run_may_stand_alone() -> None:
    found = job_file.parse_arguments(["--server", "-h", "--version", "--json"])
    assert found.run == {"server": "", "help": "1", "version": "1", "json": "1"} and not found.jobs


def test_a_file_is_bounded(tmp_path: Path) -> None:
    file = tmp_path / "long"
    file.write_bytes(b";" * (job_file.MAX_FILE_BYTES + 1))
    with pytest.raises(InvalidArgument, match="longer than"):
        job_file.read(file)
    with pytest.raises(FileNotFoundError):
        job_file.read(tmp_path / "absent")


def test_jobs_come_back_from_json() -> None:
    (job,) = job_file.parse_text("[a]\nsize=1m\nrw=write", "x")
    same = job_file.from_json({"given": dict(job.given), "inherited": {}})
    assert same.values == job.values
    for bad in (
        {},
        {"given": 3, "inherited": {}},
        {"given": {"name": 3}, "inherited": {}},
        {"given": {"x": "1"}, "inherited": {}},
    ):
        with pytest.raises(InvalidArgument):
            job_file.from_json(bad)
