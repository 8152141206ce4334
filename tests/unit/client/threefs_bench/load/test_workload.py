from collections import Counter
from itertools import islice, pairwise
from typing import Any

import pytest
from threefs_bench.load.job import Job, checked
from threefs_bench.load.workload import Group, groups, seed_of


def job(**given: Any) -> Job:
    return checked(Job({"name": "a", **{name: str(value) for name, value in given.items()}}, {}))


def take(made: Job, count: int, seed: int = 1) -> list[Group]:
    return list(islice(groups(made, seed), count))


def test_sequential_blocks_go_through_one_file_after_the_other_and_again() -> None:
    found = take(job(size="32k", bs="4k", nrfiles=2, rw="write"), 10)
    rows = [row for is_write, part in found for row in part if is_write]
    assert rows == [(0, at, 4096) for at in range(0, 16384, 4096)] + [(1, at, 4096) for at in range(0, 16384, 4096)] + [
        (0, 0, 4096),
        (0, 4096, 4096),
    ]


@pytest.mark.parametrize("sizes", [{"bs": "4k"}, {"bs": "4k,8k"}])
def test_in_a_sequential_mix_each_direction_has_a_place_of_its_own(sizes: dict[str, str]) -> None:
    found = take(job(size="32k", rw="rw", **sizes), 40)
    for direction in (False, True):
        rows = [row for is_write, part in found for row in part if is_write is direction]
        assert len(rows) > 10
        assert [row[1] for row in rows] == [number * rows[0][2] % 32768 for number in range(len(rows))]


def test_random_order_has_every_block_once_in_each_pass() -> None:
    made = job(filesize="400k", nrfiles=3, bs="4k", rw="randread")
    first, second = take(made, 300), take(made, 600)[300:]
    for found in (first, second):
        assert Counter(row for _, (row,) in found) == Counter(
            (f, at * 4096, 4096) for f in range(3) for at in range(100)
        )
    assert first != second, "each pass has an order of its own"


def test_a_seed_gives_the_same_load_again() -> None:
    made = job(size="4m", bssplit="4k/50:16k/50", rw="randrw", random_distribution="zipf:1.2")
    assert take(made, 500, 7) == take(made, 500, 7) != take(made, 500, 8)
    assert seed_of(made, 0, 0) == seed_of(made, 0, 0)
    assert len({seed_of(made, number, process) for number in range(4) for process in range(4)}) == 16
    assert seed_of(job(size="4m", randseed=9), 0, 0) != seed_of(job(size="4m"), 0, 0)


def test_a_group_has_one_direction_and_batch_blocks() -> None:
    made = job(size="40k", bs="4k", batch=4, rw="randrw", rwmixread=30)
    found = take(made, 3000)
    assert [len(rows) for _, rows in found[:6]] == [4, 4, 2, 4, 4, 2], "the last group of a pass is short"
    assert 0.25 < sum(not is_write for is_write, _ in found) / len(found) < 0.35


@pytest.mark.parametrize(("rw", "writes"), [("randread", {False}), ("randwrite", {True}), ("randrw", {False, True})])
def test_directions(rw: str, writes: set[bool]) -> None:
    assert {is_write for is_write, _ in take(job(size="4m", rw=rw), 200)} == writes


def test_zipf_prefers_few_blocks_that_lie_apart() -> None:
    found = Counter(row for _, (row,) in take(job(size="4m", rw="randread", random_distribution="zipf:1.2"), 10_000))
    (favourite, times), (second, _) = found.most_common(2)
    assert times > 1000 and len(found) > 200
    assert abs(favourite[1] - second[1]) > 4096 and all(row[1] % 4096 == 0 and row[1] < 4 << 20 for row in found)


@pytest.mark.slow
@pytest.mark.parametrize("distribution", ["random", "zipf"])
def test_split_blocks_stay_in_their_file(distribution: str) -> None:
    made = job(filesize="100k", nrfiles=3, bssplit="4k/70:32k/30", rw="randread", random_distribution=distribution)
    rows = [row for _, part in take(made, 5000) for row in part]
    assert all(0 <= file < 3 and at % 4096 == 0 and at + size <= 102400 for file, at, size in rows)
    sizes = Counter(size for _, _, size in rows)
    assert set(sizes) == {4096, 32768} and 0.65 < sizes[4096] / len(rows) < 0.75
    assert {file for file, _, _ in rows} == {0, 1, 2}


def test_split_sequential_blocks_follow_each_other() -> None:
    made = job(filesize="100k", nrfiles=2, bssplit="4k/50:32k/50", rw="read", batch=2)
    rows = [row for _, part in take(made, 100) for row in part]
    for (file, at, size), (next_file, next_at, next_size) in pairwise(rows):
        assert at + size <= 102400
        assert (next_file, next_at) == ((file, at + size) if at + size + next_size <= 102400 else ((file + 1) % 2, 0))


def test_reads_and_writes_may_have_sizes_of_their_own() -> None:
    found = take(job(size="4m", bs="4k,64k", rw="randrw"), 500)
    assert {(is_write, row[2]) for is_write, (row,) in found} == {(False, 4096), (True, 65536)}
