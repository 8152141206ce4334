"""safetensors files on a cluster as tensors of torch.

import threefs_torch

threefs_torch.save_file(model.state_dict(), "threefs://host:port/models/a.safetensors")
model.load_state_dict(threefs_torch.load_file("threefs://host:port/models/a.safetensors"))
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from os import PathLike, fspath
from typing import Any

import torch
from numpy.typing import NDArray
from threefs_checkpoint import read_once, tensor_file
from threefs_checkpoint.loading import LoadReport
from threefs_checkpoint.safetensors_format import DTYPE_BITS, DTYPE_NAMES, TensorInfo
from threefs_checkpoint.slices import Slice
from threefs_checkpoint.tensor_file import BATCH_BYTES, KnownHeader, TensorFile
from threefs_checkpoint.torch_group import TorchGroup
from threefs_client import FileSystem
from threefs_fsspec import ThreefsFileSystem, urls

from threefs.errors import InvalidArgument, NotSupported
from threefs_torch.checkpoint_directory import is_url
from threefs_torch.tensor_bytes import array_of, plain, slices, view_of

#: The types of torch by the names of the format.
_DTYPES = {name: getattr(torch, of_torch) for of_torch, name in DTYPE_NAMES.items() if hasattr(torch, of_torch)}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}

Url = str | PathLike[str]


class SafetensorsFile(TensorFile[torch.Tensor]):
    """The tensors of a file, each read when it is asked for, straight into its memory. Use it in a `with` block:

    with SafetensorsFile("threefs://host:port/models/a.safetensors") as file:
        weight = file.get_tensor("layers.0.weight")
        rows = file.get_slice("layers.0.weight")[0:16]
    """

    def __init__(self, url: Url, *, device: Any = "cpu", known: KnownHeader | None = None, **options: Any) -> None:
        """`options` are those of the connection. Raises InvalidArgument, NotFound, Corrupt, NotSupported."""
        self._device = torch.device(device)
        super().__init__(*_located(url, options), known=known)

    def empty(self, name: str, info: TensorInfo, shape: tuple[int, ...]) -> tuple[torch.Tensor, NDArray[Any]]:
        if info.dtype not in _DTYPES:
            raise NotSupported(
                f"tensor {name!r} of {self.path} is {info.dtype}, whose numbers of {DTYPE_BITS[info.dtype]} bits are "
                "not loaded as tensors of torch"
            )
        tensor = torch.empty(shape, dtype=_DTYPES[info.dtype])
        return tensor, array_of(tensor)

    def get_tensors(self, names: Iterable[str] | None = None) -> dict[str, torch.Tensor]:
        """The tensors of these names, or all, read in batches. On the way to another device they take at most the
        memory of a batch, or of one tensor. Raises NotFound, Corrupt, NotSupported."""
        chosen = self.keys() if names is None else list(names)
        if self._device.type == "cpu":
            return super().get_tensors(chosen)
        found: dict[str, torch.Tensor] = {}
        for portion in self._portions(chosen):
            found |= {name: tensor.to(self._device) for name, tensor in super().get_tensors(portion).items()}
        return found

    def read_part(self, name: str, part: Slice) -> torch.Tensor:
        """Raises Corrupt, NotSupported."""
        return super().read_part(name, part).to(self._device)

    def _portions(self, names: list[str]) -> Iterator[list[str]]:
        portion, size = list[str](), 0
        for name in names:
            nbytes = self.info(name).nbytes
            if portion and size + nbytes > BATCH_BYTES:
                yield portion
                portion, size = [], 0
            portion.append(name)
            size += nbytes
        yield portion


def load_file(
    url: Url, names: Iterable[str] | None = None, *, device: Any = "cpu", **options: Any
) -> dict[str, torch.Tensor]:
    """The tensors of these names, or all, of the file at threefs://host:port/path.

    `options` are those of the connection. Raises InvalidArgument, NotFound, Corrupt, NotSupported.
    """
    with SafetensorsFile(url, device=device, **options) as file:
        return file.get_tensors(names)


def load_once(
    url: Url,
    group: Any = None,
    *,
    device: Any = "cpu",
    report: LoadReport | None = None,
    **options: Any,
) -> dict[str, torch.Tensor]:
    """All tensors, on every rank of a process group of torch.distributed (None: all ranks). Every rank calls it.

    Each byte is read from storage by one of the ranks, and passed on over gloo, whatever the group itself uses. The
    whole file is in main memory before it goes to another device. Raises what `load_file` raises, and Unavailable where
    another rank has failed.
    """
    ranks = TorchGroup(group)
    try:
        found = read_once.load(partial(SafetensorsFile, url, **options), ranks, report)
    finally:
        ranks.close()
    return {name: tensor.to(device) for name, tensor in found.items()}


def save_file(
    tensors: Mapping[str, torch.Tensor],
    url: Url,
    metadata: Mapping[str, str] | None = None,
    *,
    chunk_bytes: int = 0,
    **options: Any,
) -> int:
    """Write a file with these tensors. It appears whole, also in place of another one. Returns its length in bytes.

    Tensors that share memory are stored each for itself. `options` are those of the connection. Raises InvalidArgument.
    """
    fs, path = _located(url, options)
    described = {name: (_dtype_name(name, tensor), tuple(tensor.shape)) for name, tensor in tensors.items()}

    def contents(name: str) -> Iterator[memoryview]:
        for part in slices(plain(tensors[name]), BATCH_BYTES):
            yield view_of(part.cpu())

    return tensor_file.write(fs, path, described, contents, metadata, chunk_bytes)


def _dtype_name(name: str, tensor: torch.Tensor) -> str:
    if tensor.dtype not in _NAMES:
        raise InvalidArgument(
            f"tensor {name!r} is {tensor.dtype}; a safetensors file holds {', '.join(map(str, _NAMES))}"
        )
    return _NAMES[tensor.dtype]


def _located(url: Url, options: dict[str, Any]) -> tuple[FileSystem, str]:
    if not is_url(url):
        raise InvalidArgument(f"{fspath(url)!r} is not on a cluster; write threefs://host:port/path")
    address, path = urls.split(fspath(url))
    return ThreefsFileSystem(address or None, **options).client, path
