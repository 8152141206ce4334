"""Copies a checkpoint to a safetensors file, and a safetensors file to a checkpoint."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from threefs.checksums import Buffer
from threefs.errors import NotSupported
from threefs_checkpoint import loading, safetensors_format
from threefs_checkpoint.checkpoint import save
from threefs_checkpoint.dtypes import ELEMENT_TYPES, bytes_of
from threefs_checkpoint.filesystem_protocol import FileSystem
from threefs_checkpoint.index import Index
from threefs_checkpoint.job_directory import read_index
from threefs_checkpoint.safetensors_format import DTYPE_NAMES, LENGTH_BYTES
from threefs_checkpoint.state import Shard

_ELEMENT_NAMES = {name: element for element, name in DTYPE_NAMES.items()}


def export(fs: FileSystem, path: str, names: Sequence[str] | None, write: Callable[[Buffer], object]) -> int:
    """Write the tensors of a checkpoint, or those of these names, as a safetensors file. Returns its length in bytes.

    `write` gets the file from its beginning to its end; one tensor at a time is in memory. Raises NotFound,
    NotSupported.
    """
    index = read_index(fs, path)
    wanted = loading.wanted_of(index, names)
    described = {name: (_dtype_name(index, name), part.shape) for name, part in wanted.items()}
    start, header = safetensors_format.encode_header(described, {"step": str(index.step)})
    write(start)
    for name in header.tensors:
        write(bytes_of(loading.load(fs, path, index, {name: wanted[name]})[name]))
    return header.file_bytes


def _dtype_name(index: Index, name: str) -> str:
    derived = index.derived.get(name)
    tensor = index.tensors.get(name)
    dtype = derived.dtype if derived is not None else tensor.dtype if tensor is not None else "float32"
    if dtype not in DTYPE_NAMES:
        raise NotSupported(f"tensor {name!r} is {dtype}, which a safetensors file cannot hold")
    return DTYPE_NAMES[dtype]


def import_file(fs: FileSystem, file: Path, path: str, **options: Any) -> Mapping[str, str]:
    """Save the tensors of a local safetensors file as the checkpoint `path`. Returns the metadata of the file.

    The file is mapped, so its bytes are in memory only while they are copied. Raises Corrupt, NotSupported.
    """
    file_bytes = file.stat().st_size
    with file.open("rb") as opened:
        length = safetensors_format.header_bytes(opened.read(LENGTH_BYTES), file_bytes, str(file))
        header = safetensors_format.decode_header(opened.read(length), file_bytes, str(file))
    content = np.memmap(file, np.uint8, "r")  # one for all tensors: each takes a descriptor
    state = {}
    for name, info in header.tensors.items():
        if info.dtype not in _ELEMENT_NAMES:
            raise NotSupported(f"{file}: tensor {name!r} is {info.dtype}, which a checkpoint cannot hold")
        kind = ELEMENT_TYPES[_ELEMENT_NAMES[info.dtype]]
        array = content[info.offset : info.offset + info.nbytes].view(kind.carrier).reshape(info.shape)
        state[name] = Shard(array, info.shape, (0,) * len(info.shape), kind.name)
    save(fs, path, state, metadata=dict(header.metadata), **options)
    return header.metadata
