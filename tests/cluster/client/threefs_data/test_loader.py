import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from threefs_data import Dataset, Datasets, Loader, Mixture, Sequential, pack

from tests.harness.local_files import LocalFiles
from threefs.errors import InvalidArgument

SAMPLES = [bytes([number % 251]) * (number % 300) for number in range(1000)]


@pytest.fixture
def fs(tmp_path: Path) -> LocalFiles:
    files = LocalFiles(str(tmp_path))
    pack(files, SAMPLES, "/ds", shard_bytes=20_000)
    return files


def loader(fs: LocalFiles, **options: Any) -> Loader:
    return Loader(Dataset(fs, "/ds"), **{"global_batch": 64, "start_method": "fork", **options})


def rest_of_epoch(found: Loader) -> list[tuple[int, bytes]]:
    return [
        (int(number), bytes(sample))
        for batch in found
        for number, sample in zip(batch.numbers, batch.samples, strict=True)
    ]


@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_worker_processes_read_the_same_epochs_as_a_thread(fs: LocalFiles, start_method: str) -> None:
    with loader(fs, seed=5) as alone, loader(fs, seed=5, workers=3, start_method=start_method) as several:
        first, second = rest_of_epoch(alone), rest_of_epoch(alone)
        assert sorted(first) == sorted(second) == list(enumerate(SAMPLES))
        assert first != second != sorted(second)
        assert rest_of_epoch(several) == first
        assert rest_of_epoch(several) == second


def test_ranks_divide_the_samples(fs: LocalFiles) -> None:
    parts = []
    for rank in range(3):
        with loader(fs, rank=rank, world=3, workers=1) as found:
            assert len(found) == 16
            parts.append(rest_of_epoch(found))
    assert sorted(row for part in parts for row in part) == list(enumerate(SAMPLES))
    assert max(map(len, parts)) - min(map(len, parts)) <= 16


def test_the_state_counts_what_the_training_has_got_and_not_what_is_read_ahead(fs: LocalFiles) -> None:
    with loader(fs, workers=2, depth=5) as found:
        assert found.state_dict()["consumed"] == 0
        for step, _ in enumerate(found, 1):
            if step == 3:
                break
        assert found.state_dict()["consumed"] == 3 * 64
        assert len(found) == 13
        rest = rest_of_epoch(found)
        assert len(rest) == 1000 - 192
        state = found.state_dict()
        assert (state["epoch"], state["consumed"]) == (1, 0)


def test_nothing_is_lost_or_doubled_over_stops_resumes_and_resizes(fs: LocalFiles) -> None:
    source = random.Random(3)
    taken: Counter[int] = Counter()
    state: dict[str, Any] | None = None
    while state is None or state["epoch"] < 2:
        world, batch, steps = source.randint(1, 3), source.randint(20, 200), source.randint(1, 6)
        states = []
        for rank in range(world):
            with loader(fs, global_batch=batch, rank=rank, world=world, workers=source.randint(0, 2)) as found:
                if state is not None:
                    found.load_state_dict(state)
                for step, part in zip(range(1, steps + 1), found, strict=False):
                    taken.update(part.numbers.tolist())
                    assert [bytes(sample) for sample in part.samples] == [SAMPLES[n] for n in part.numbers]
                    states.append((step, found.state_dict()))
        last = max(step for step, _ in states)
        ends = [found_state for step, found_state in states if step == last]
        assert len(ends) == world and all(end == ends[0] for end in ends)
        state = json.loads(json.dumps(ends[0]))
        whole = state["epoch"] if state["consumed"] == 0 else None
        if whole is not None:
            assert taken == Counter(dict.fromkeys(range(1000), whole))


def test_a_mixture_goes_on_where_it_stopped(fs: LocalFiles) -> None:
    pack(fs, [b"other %d" % number for number in range(50)], "/other")
    datasets = Datasets(Dataset(fs, "/ds"), Dataset(fs, "/other"))
    order = Mixture(datasets.lengths, (0.5, 0.5), 400)

    def opened() -> Loader:
        return Loader(datasets, order=order, global_batch=30, workers=1, start_method="fork")

    with opened() as whole, opened() as first, opened() as second:
        expected = rest_of_epoch(whole)
        assert len(expected) == 400
        begin = [row for _, batch in zip(range(4), first, strict=False) for row in batch.numbers.tolist()]
        second.load_state_dict(first.state_dict())
        assert second.state_dict()["consumed"] == 120
        assert [number for number, _ in expected] == begin[:120] + [n for n, _ in rest_of_epoch(second)]
    datasets.close()


def test_states_of_other_data_or_orders_are_refused(fs: LocalFiles) -> None:
    pack(fs, SAMPLES[:-1], "/other")
    others = [Loader(Dataset(fs, "/other"), global_batch=64), loader(fs, order=Sequential(1000))]
    for other in others:
        with pytest.raises(InvalidArgument, match="another dataset or order"):
            loader(fs).load_state_dict(other.state_dict())


def test_a_batch_that_is_never_full_is_refused(fs: LocalFiles) -> None:
    with pytest.raises(InvalidArgument, match="1000 samples do not make a batch"):
        loader(fs, global_batch=1001, drop_last=True)
    pack(fs, [], "/empty")
    with pytest.raises(InvalidArgument, match="0 samples"):
        Loader(Dataset(fs, "/empty"), global_batch=1)
