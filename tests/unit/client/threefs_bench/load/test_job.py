from typing import Any

import pytest
from threefs_bench.load.job import Job, check_together, checked, group_ids, phases

from threefs.errors import InvalidArgument


def job(**given: Any) -> Job:
    return Job({"name": "a", **{name: str(value) for name, value in given.items()}}, {})


def test_what_is_given_comes_before_what_is_inherited() -> None:
    made = Job({"name": "a", "bs": "8k"}, {"bs": "4k", "rw": "randwrite"})
    assert made["bs"].read == 8192 and made["rw"] == "randwrite"
    assert made.is_random and made.writes and not made.reads and made.read_percent == 0


def test_the_amount_of_a_pass() -> None:
    assert job(size="1m", bs="4k").pass_bytes == 1 << 20
    assert job(size="10k", bs="4k").pass_bytes == 8192, "whole blocks only"
    assert job(filesize="64k", nrfiles=3, bs="4k").pass_bytes == 3 * 65536
    assert job(size="1m", filesize="64k", nrfiles=16, bs="4k").pass_bytes == 1 << 20
    assert job(size="1m", nrfiles=4).file_bytes == 1 << 18
    assert job(size="1m", filesize="64k", nrfiles=2, bssplit="4k/50:8k/50").pass_bytes == 1 << 17, "all of it"


def test_the_depth_is_divided_into_calls() -> None:
    assert (job(iodepth=32).slots, job(iodepth=32).depth) == (32, 32)
    assert (job(batch=256).slots, job(batch=256).depth) == (1, 256)
    assert job(batch=256, iodepth=1024).slots == 4


def test_files_have_fio_s_names() -> None:
    made = job(size="1m", nrfiles=2, directory="/data/", ioengine="posix")
    assert made.paths(3) == ["/data/a.3.0", "/data/a.3.1"]
    assert made.paths(3, "host-1") == ["/data/host-1.a.3.0", "/data/host-1.a.3.1"]
    assert job(filename="x").paths(7) == ["/x"]
    assert job(ioengine="posix").paths(0) == ["./a.0.0"]
    assert job(ioengine="posix", filename="x").paths(0) == ["./x"]
    assert Job({"name": "../b"}, {}).paths(0) == ["/.._b.0.0"], "a name stays within its directory"


@pytest.mark.parametrize("engine", ["posix", "native"])
def test_a_file_name_with_a_slash_in_front_needs_no_directory(engine: str) -> None:
    assert job(ioengine=engine, filename="/data/x").paths(0) == ["/data/x"]
    assert job(ioengine=engine, filename="x", directory="/data").paths(0) == ["/data/x"]


def test_a_colon_stands_between_the_names_of_files() -> None:
    made = checked(job(size="64k", filename=r"x:y\:z", directory="/data"))
    assert (made.paths(0), made.files, made.file_bytes) == (["/data/x", "/data/y:z"], 2, 1 << 15)
    assert checked(job(size="64k", filename="x:y", nrfiles=2)).files == 2
    inherits = Job({"name": "a", "ioengine": "meta", "nrfiles": "9"}, {"filename": "x"})
    assert checked(inherits).files == 9, "the names of the engine meta are its own"


def test_block_sizes_are_those_that_are_used() -> None:
    assert job(bs="4k,64k", rw="read").block_sizes == (4096,)
    assert job(bs="4k,64k", rw="rw").block_sizes == (4096, 65536)
    assert job(bssplit="4k/50:64k/50:1m/0").block_sizes == (4096, 65536)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "size or filesize is missing"),
        ({"size": "1m", "time_based": 1}, "time_based needs a runtime"),
        ({"size": "1m", "batch": 4, "iodepth": 6}, "iodepth=6 is not a multiple of batch=4"),
        ({"size": "1m", "batch": 4, "ioengine": "posix"}, "batch=4 is for the engines native and meta"),
        ({"size": "1m", "address": "x:1", "ioengine": "posix"}, "address is for"),
        ({"size": "1k"}, "less than a block of 4096"),
        ({"size": "1m", "bs": "0"}, "block size of 0"),
        ({"size": "1m", "bs": "4k", "bssplit": "4k/100"}, "both give block sizes"),
        ({"size": "1m", "filename": "x", "nrfiles": 2}, "names one file"),
        ({"size": "1m", "filename": "x:y", "nrfiles": 3}, "names 2 files, and nrfiles=3"),
        ({"size": "8191p", "rw": "randwrite"}, "at most 281474976710655 blocks"),
        ({"size": "1m", "filename": "x::y"}, "empty, or two of one file"),
        ({"size": "1m", "filename": "x:x"}, "empty, or two of one file"),
        ({"size": "1m", "filename": "/x://x"}, "empty, or two of one file"),
        ({"size": "1m", "filename": "x:/x"}, "empty, or two of one file"),
        ({"size": "1m", "filename": "/x:x", "directory": "/d"}, "empty, or two of one file"),
        ({"size": "1m", "filename": "/x:../x", "directory": "/"}, "empty, or two of one file"),
        ({"size": "1m", "bs": "1000", "direct": 1, "ioengine": "posix"}, "direct=1 needs"),
        ({"size": "10g", "bs": "1g", "iodepth": 2}, "lower iodepth or bs"),
        ({"size": "1m", "verify": "crc32c", "bssplit": "4k/50:8k/50"}, "one block size"),
        ({"size": "1m", "verify": "crc32c", "bs": "100"}, "at least 512 bytes"),
        ({"size": "64k", "verify": "crc32c", "iodepth": 9}, "too much for 16 blocks"),
        ({"size": "1m", "verify": "crc32c", "rw": "write", "filename": "x", "numjobs": 2}, "several processes write"),
        ({"size": "1p", "verify": "crc32c"}, "verify takes at most"),
        ({"ioengine": "meta", "size": "1m"}, "the engine meta has only names"),
        ({"ioengine": "meta", "nrfiles": 4, "iodepth": 8}, "cannot be divided among 8 calls"),
    ],
)
def test_options_that_do_not_fit_are_refused_in_words(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidArgument, match=said) as raised:
        checked(job(**given))
    assert raised.value.message.startswith("job 'a': ")


def test_a_job_has_a_name() -> None:
    with pytest.raises(InvalidArgument, match="it has no name"):
        checked(Job({"size": "1m"}, {}))


WRITER = {"rw": "write", "verify": "crc32c", "filename": "x"}
READER = WRITER | {"rw": "read"}
NUMBERED = job(rw="write", verify="crc32c", numjobs=2, nrfiles=3)


@pytest.mark.parametrize(
    "jobs",
    [
        (job(**WRITER), job(**WRITER)),
        (job(**WRITER), job(**READER)),
        (job(**READER), job(rw="randrw", filename="y:x")),
        (job(rw="write", filename="x"), job(rw="read", verify="crc32c", directory="/", filename="x")),
        (job(ioengine="posix", **WRITER), job(ioengine="posix", **(WRITER | {"filename": ".//x"}))),
        (job(rw="write", verify="crc32c"), job(rw="write", verify="crc32c", numjobs=2)),  # of one name
        (job(**(WRITER | {"filename": "//x"})), job(**READER)),
        (job(**WRITER), job(directory="/", **(READER | {"filename": "/x"}))),
        (job(rw="write", filename="a.0.0"), job(rw="read", verify="crc32c")),
    ],
)
def test_a_job_does_not_verify_what_another_one_writes_at_the_same_time(jobs: tuple[Job, Job]) -> None:
    with pytest.raises(InvalidArgument, match=r"verify cannot judge (/|\./)?(x|a\.0\.0), which job 'a' writes"):
        check_together(jobs)


@pytest.mark.parametrize(
    "jobs",
    [
        (job(**WRITER), job(stonewall=1, **READER)),
        (job(**WRITER), job(stonewall=1, **WRITER)),
        (job(**READER), job(**READER)),
        (job(**WRITER), job(**(WRITER | {"filename": "y"}))),
        (job(**WRITER), job(ioengine="posix", **WRITER)),
        (job(address="one:1", **WRITER), job(address="two:1", **WRITER)),
        (job(rw="write", filename="x"), job(rw="write", filename="x")),
        (job(**WRITER), job(ioengine="meta", name="x")),
        *((job(**(WRITER | {"filename": name})), NUMBERED) for name in ("a.2.0", "a.0.3", "a.0.01", "b.0.0", "a.0")),
        (NUMBERED, job(rw="write", verify="crc32c", name="a.0")),
        (NUMBERED, job(rw="write", verify="crc32c", directory="/b")),
    ],
)
def test_jobs_may_share_files_that_only_one_of_them_writes_at_a_time(jobs: tuple[Job, Job]) -> None:
    check_together(jobs)


def test_jobs_are_compared_without_the_list_of_their_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two jobs of 64 processes with 10,000 files each took seconds and half a gigabyte, and a thousand times as many
    are allowed."""
    monkeypatch.setattr(Job, "paths", None)
    most = {"rw": "write", "verify": "crc32c", "numjobs": 1024, "nrfiles": 1 << 20}
    check_together([job(**most), job(name="b", **most)])
    with pytest.raises(InvalidArgument, match=r"verify cannot judge /a\.0\.0, which job 'a' writes"):
        check_together([job(**most), job(**most)])


def test_stonewalls_divide_the_run() -> None:
    jobs = [job(), job(), job(stonewall=1), job(), job(new_group=1)]
    assert phases(jobs) == [[0, 1], [2, 3, 4]]
    assert group_ids(jobs) == [0, 0, 1, 1, 2]
    assert phases([job(stonewall=1)]) == [[0]] and group_ids([job(stonewall=1)]) == [0]
