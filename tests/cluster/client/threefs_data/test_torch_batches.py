import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from threefs_data import Dataset, Loader, pack

from tests.harness.local_files import LocalFiles
from threefs.errors import InvalidArgument

torch_data = pytest.importorskip("torch.utils.data", reason="PyTorch is not installed (make ml-venv)")

SAMPLES = [b"%d" % number for number in range(200)]


@pytest.fixture
def dataset(tmp_path: Path) -> Iterator[Dataset]:
    files = LocalFiles(str(tmp_path))
    pack(files, SAMPLES, "/ds", shard_bytes=300)
    with Dataset(files, "/ds") as found:
        yield found


def as_they_are(samples: list[bytes]) -> list[bytes]:
    """Collates nothing; a function of a module, so that spawned workers find it."""
    return samples


def expected(dataset: Dataset, epoch: int) -> list[list[bytes]]:
    with Loader(dataset, global_batch=32, seed=3) as loader:
        epochs = [[[bytes(sample) for sample in batch.samples] for batch in loader] for _ in range(epoch + 1)]
    return epochs[epoch]


def torch_loader(dataset: Dataset, kind: str, numbers: Any, **options: Any) -> Any:
    from threefs_data.torch_batches import IterableBatches

    if kind == "map":
        return torch_data.DataLoader(dataset, batch_sampler=numbers, collate_fn=as_they_are, **options)
    return torch_data.DataLoader(IterableBatches(dataset, numbers), batch_size=None, **options)


@pytest.mark.parametrize("kind", ["map", "iterable"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_workers": 2, "multiprocessing_context": "fork"},
        {"num_workers": 2, "multiprocessing_context": "fork", "persistent_workers": True},
        {"num_workers": 1, "multiprocessing_context": "spawn", "persistent_workers": True},
    ],
    ids=["alone", "fork", "persistent", "spawn"],
)
def test_epochs_are_those_of_the_own_loader(dataset: Dataset, kind: str, options: dict[str, Any]) -> None:
    from threefs_data.torch_batches import BatchNumbers

    numbers = BatchNumbers(dataset, global_batch=32, seed=3)
    loader = torch_loader(dataset, kind, numbers, **options)
    for epoch in range(2):
        found = list(loader)
        assert found == expected(dataset, epoch)
        assert len(found) == len(numbers) == 7
        numbers.advance(len(found))


def late(worker: int) -> None:
    """The second worker begins when the training has the batch of the first one."""
    time.sleep(worker)


@pytest.mark.parametrize("kind", ["map", "iterable"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_workers": 2, "multiprocessing_context": "fork", "worker_init_fn": late},
        {"num_workers": 2, "multiprocessing_context": "fork", "worker_init_fn": late, "persistent_workers": True},
        {"num_workers": 2, "multiprocessing_context": "spawn", "worker_init_fn": late},
    ],
    ids=["alone", "fork", "persistent", "spawn"],
)
def test_a_training_may_count_each_batch_when_it_has_it(dataset: Dataset, kind: str, options: dict[str, Any]) -> None:
    from threefs_data.torch_batches import BatchNumbers

    numbers = BatchNumbers(dataset, global_batch=32, seed=3)
    loader = torch_loader(dataset, kind, numbers, **options)
    for epoch in range(2):
        found = []
        for batch in loader:
            found.append(batch)
            numbers.advance(1)
        assert found == expected(dataset, epoch)


@pytest.mark.parametrize("kind", ["map", "iterable"])
def test_a_training_goes_on_with_the_own_loader_and_back(dataset: Dataset, kind: str) -> None:
    from threefs_data.torch_batches import BatchNumbers

    whole = expected(dataset, 0)
    numbers = BatchNumbers(dataset, global_batch=32, seed=3)
    loader = torch_loader(dataset, kind, numbers, num_workers=2, multiprocessing_context="fork")
    begun = [batch for _, batch in zip(range(3), loader, strict=False)]
    with Loader(dataset, global_batch=32) as own:
        own.load_state_dict(numbers.state_dict(batches=3))
        middle = [[bytes(sample) for sample in batch.samples] for _, batch in zip(range(2), own, strict=False)]
        again = BatchNumbers(dataset, global_batch=32)
        again.load_state_dict(own.state_dict())
    rest = list(torch_loader(dataset, kind, again))
    assert begun + middle + rest == whole
    with pytest.raises(InvalidArgument, match="another dataset or order"):
        again.load_state_dict({**numbers.state_dict(), "fingerprint": "x"})
