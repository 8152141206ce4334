"""Loads by torch.distributed.checkpoint: `load(state, storage_reader=ThreeFSReader("threefs://host:port/path"))`."""

import io
from os import PathLike
from typing import Any

import torch
from threefs_checkpoint.batch_reader import BatchReader
from threefs_checkpoint.slices import Slice, StoredSlice
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex, StorageMeta
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, ReadItem
from torch.distributed.checkpoint.storage import StorageReader
from torch.futures import Future

from threefs.env.random import RANDOM
from threefs.errors import Corrupt, InvalidArgument, NotSupported
from threefs_torch.checkpoint_directory import CheckpointDirectory, is_url
from threefs_torch.metadata_format import MAX_OBJECT_BYTES, StoredItem
from threefs_torch.tensor_bytes import DTYPES, read_slice


class ThreeFSReader(StorageReader):
    """Each rank reads the bytes that it needs, in batches, straight into tensors that are contiguous in main memory.
    The others take at most `staging_bytes` of memory on the way.

    Values that are no tensors were pickled by the planner. They are loaded if they hold plain data, or what
    `torch.serialization.add_safe_globals` was told of.
    """

    def __init__(
        self, path: "str | PathLike[str]", *, allow_pickle: bool = False, staging_bytes: int = 256 << 20, **options: Any
    ) -> None:
        """`path` is threefs://host:port/directory. With `allow_pickle` loading may run code that the checkpoint holds.
        `options` are those of the connection. Raises InvalidArgument."""
        if staging_bytes < 1:
            raise InvalidArgument(f"staging_bytes must be at least 1, not {staging_bytes}")
        self._directory = CheckpointDirectory(path, **options)
        self._allow_pickle = allow_pickle
        self._staging_bytes = staging_bytes
        self._items: dict[MetadataIndex, StoredItem] = {}
        self._sizes: dict[MetadataIndex, torch.Size] = {}

    # ---- what torch.distributed.checkpoint calls, in this order ----

    def reset(self, checkpoint_id: "str | PathLike[str] | None" = None) -> None:
        """A new load begins, maybe from another directory."""
        if checkpoint_id:
            self._directory = self._directory.other(checkpoint_id)
        self._items, self._sizes = {}, {}

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """The content of the checkpoint; with `rank`, what that rank has saved without the others. Raises NotFound,
        Corrupt, NotSupported."""
        metadata = self._directory.read_metadata(kwargs.get("rank"))
        metadata.storage_meta = metadata.storage_meta or StorageMeta()
        metadata.storage_meta.load_id = RANDOM.token(8).hex()
        return metadata

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Keep what `read_metadata` has returned."""
        self._items = metadata.storage_data
        self._sizes = {
            MetadataIndex(name, chunk.offsets): chunk.sizes
            for name, entry in metadata.state_dict_metadata.items()
            for chunk in getattr(entry, "chunks", ())
        }

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Nothing."""
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """Nothing."""
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Read the values of this rank. Raises NotFound, Corrupt, NotSupported."""
        reader = BatchReader(self._directory.fs, self._staging_bytes)
        for request in plan.items:
            if request.type is LoadItemType.BYTE_IO:
                self._read_object(reader, request, planner)
            else:
                self._read_tensor(reader, request, planner)
        reader.flush()
        done: Future[None] = Future()
        done.set_result(None)
        return done

    @property
    def checkpoint_id(self) -> str:
        """The URL of the directory."""
        return self._directory.url

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: "str | PathLike[str]") -> bool:
        """Whether it is the URL of a directory on a cluster."""
        return is_url(checkpoint_id)

    # ---- how ----

    def _read_object(self, reader: BatchReader, request: ReadItem, planner: LoadPlanner) -> None:
        item = self._items[request.storage_index]
        if item.length > MAX_OBJECT_BYTES:
            raise Corrupt(f"value {request.storage_index.fqn!r} of {self.checkpoint_id} has {item.length} bytes")
        content = bytearray(item.length)

        def loaded() -> None:
            if not self._allow_pickle:
                self._check_plain(request.storage_index.fqn, content)
            planner.load_bytes(request, io.BytesIO(content))

        reader.add(self._directory.file(item.file), [(item.offset, memoryview(content))], loaded)

    def _check_plain(self, name: str, content: bytearray) -> None:
        """The planner unpickles with everything that a pickle can do, so this tries it first without."""
        try:
            torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        except Exception as error:  # torch raises many kinds
            raise NotSupported(
                f"value {name!r} of {self.checkpoint_id} is more than plain data: torch.serialization.add_safe_globals "
                "admits a class, and ThreeFSReader(..., allow_pickle=True) everything, also code from the checkpoint"
            ) from error

    def _read_tensor(self, reader: BatchReader, request: ReadItem, planner: LoadPlanner) -> None:
        item = self._items[request.storage_index]
        part = Slice(tuple(request.storage_offsets), tuple(request.lengths))
        stored = StoredSlice(tuple(self._sizes[request.storage_index]), part)
        target = planner.resolve_tensor(request).detach()
        if target.size() != request.lengths:
            raise InvalidArgument(
                f"the planner wants {list(request.lengths)} of {request.storage_index.fqn!r} in a tensor of "
                f"{list(target.size())}"
            )
        path = self._directory.file(item.file)
        read_slice(reader, path, item.offset, DTYPES[item.dtype], stored, target)
        reader.then(lambda: planner.commit_tensor(request, target))
