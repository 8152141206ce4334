"""Where a loader reads samples: a dataset, or several one after the other."""

import hashlib
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from threefs.errors import InvalidArgument
from threefs_data.dataset import Dataset, read_into, reopen
from threefs_data.location import Location, sample_numbers


class Source(Protocol):
    fingerprint: str

    def __len__(self) -> int: ...

    def locate(self, numbers: Sequence[int]) -> Location: ...

    def read_into(self, location: Location, buffer: memoryview) -> list[memoryview]: ...

    def batch_bytes(self, samples: int) -> int:
        """About the bytes that the samples of a batch have; exactly these if all samples have one length."""
        ...

    def close(self) -> None: ...

    def __reduce__(self) -> Any: ...


def reopened(source: Source) -> Source:
    """The same, with files and tables of its own."""
    reopen, arguments = source.__reduce__()
    again: Source = reopen(*arguments)
    return again


class Datasets:
    """Several datasets as one: the samples of the second follow those of the first. For mixtures."""

    def __init__(self, *datasets: Dataset) -> None:
        if not datasets:
            raise InvalidArgument("there is no dataset; give one or more")
        first: Any = datasets[0].fs
        for dataset in datasets:
            own: Any = dataset.fs
            if own is not first and own.__getstate__() != first.__getstate__():  # its files have the numbers of others
                raise InvalidArgument(
                    f"{dataset.path} is read by another connection than {datasets[0].path}, perhaps from another "
                    "cluster: open all datasets of a mixture by one connection"
                )
        self.datasets = datasets
        joined = "\n".join(dataset.fingerprint for dataset in datasets)
        self.fingerprint = hashlib.sha256(joined.encode()).hexdigest()[:32]
        self._firsts = np.cumsum([0] + [len(dataset) for dataset in datasets])

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process opens the datasets anew."""
        return _reopen, tuple(dataset.__reduce__()[1] for dataset in self.datasets)

    def __len__(self) -> int:
        return int(self._firsts[-1])

    @property
    def lengths(self) -> tuple[int, ...]:
        """Samples of each dataset."""
        return tuple(len(dataset) for dataset in self.datasets)

    def batch_bytes(self, samples: int) -> int:
        return max(dataset.batch_bytes(samples) for dataset in self.datasets)

    def close(self) -> None:
        for dataset in self.datasets:
            dataset.close()

    def read(self, numbers: Sequence[int]) -> list[memoryview]:
        """The samples of these numbers, verified, by one batch of reads. Raises InvalidArgument, Corrupt."""
        location = self.locate(numbers)
        return self.read_into(location, np.empty(location.nbytes, np.uint8).data)

    def read_into(self, location: Location, buffer: memoryview) -> list[memoryview]:
        return read_into(self.datasets[0].fs, location, buffer)

    def locate(self, numbers: Sequence[int]) -> Location:
        """As that of a dataset."""
        wanted = sample_numbers(numbers, len(self), "the datasets")
        owners = np.searchsorted(self._firsts, wanted, side="right") - 1
        columns = np.zeros((4, len(wanted)), np.int64)
        files: list[Any] = [None] * len(wanted)
        names: list[tuple[Location, int]] = [None] * len(wanted)  # type: ignore[list-item]
        for owner in np.unique(owners).tolist():
            at = np.flatnonzero(owners == owner)
            part = self.datasets[owner].locate((wanted[at] - self._firsts[owner]).tolist())
            columns[:, at] = part.starts, part.lengths, part.chunk_bytes, part.crcs
            for index, (place, file) in enumerate(zip(at.tolist(), part.files, strict=True)):
                files[place] = file
                names[place] = (part, index)
        starts, lengths, chunk_bytes, crcs = columns
        return Location(
            numbers=wanted,
            files=files,
            starts=starts,
            lengths=lengths,
            chunk_bytes=chunk_bytes,
            crcs=crcs,
            file_name=lambda index: names[index][0].file_name(names[index][1]),
        )


def _reopen(*datasets: tuple[Any, ...]) -> Datasets:
    return Datasets(*(reopen(*arguments) for arguments in datasets))
