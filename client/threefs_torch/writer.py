"""Saves by torch.distributed.checkpoint: `save(state, storage_writer=ThreeFSWriter("threefs://host:port/path"))`."""

import math
from collections.abc import Iterator
from contextlib import suppress
from os import PathLike
from typing import Any

from threefs_client import File
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, WriteItem, WriteItemType
from torch.distributed.checkpoint.storage import StorageWriter, WriteResult
from torch.futures import Future

from threefs.env.random import RANDOM
from threefs.errors import AlreadyExists, InvalidArgument, NotFound, ThreefsError
from threefs_torch.checkpoint_directory import CheckpointDirectory, is_url
from threefs_torch.chunked_file import BatchSender, ChunkPacker, Piece, batches
from threefs_torch.metadata_format import MAX_OBJECT_BYTES, StoredItem
from threefs_torch.tensor_bytes import dtype_name, plain, slices, view_of

#: Of the metadata, as torch calls them.
_DCP_VERSION = "1.0.0"


class ThreeFSWriter(StorageWriter):
    """Each rank writes one file, in batches of whole chunks. When all of them are durable, the coordinator publishes
    the metadata, in one step: until then there is no checkpoint, or the old one.

    A copy is made of what is not in main memory or not contiguous. Copies take at most `staging_bytes`, and one chunk.
    """

    def __init__(
        self,
        path: "str | PathLike[str]",
        *,
        overwrite: bool = False,
        staging_bytes: int = 256 << 20,
        chunk_bytes: int = 0,
        **options: Any,
    ) -> None:
        """`path` is threefs://host:port/directory. With `overwrite` a save may replace the checkpoint there; else it
        raises AlreadyExists. `chunk_bytes` is that of the files; 0 takes what the directory says. `options` are those
        of the connection. Raises InvalidArgument."""
        if staging_bytes < 1:
            raise InvalidArgument(f"staging_bytes must be at least 1, not {staging_bytes}")
        self._directory = CheckpointDirectory(path, **options)
        self._overwrite = overwrite
        self._staging_bytes = staging_bytes
        self._chunk_bytes = chunk_bytes
        self._save_id = RANDOM.token(8).hex()
        self._rank = 0
        self._is_coordinator = True
        self._use_collectives = True

    # ---- what torch.distributed.checkpoint calls, in this order ----

    def reset(self, checkpoint_id: "str | PathLike[str] | None" = None) -> None:
        """A new save begins, maybe into another directory."""
        if checkpoint_id:
            self._directory = self._directory.other(checkpoint_id)

    def storage_meta(self) -> StorageMeta:
        """The name of this save."""
        return StorageMeta(checkpoint_id=self.checkpoint_id, save_id=self._save_id)

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """torch tells who this rank is."""
        self._save_id = RANDOM.token(8).hex()
        self._is_coordinator = is_coordinator
        self._rank = kwargs.get("rank") or 0
        self._use_collectives = kwargs.get("use_collectives", True)

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Raises AlreadyExists, before anything is written."""
        if self._publishes and not self._overwrite and self._directory.is_published(self._metadata_rank):
            raise AlreadyExists(self._directory.taken)
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Nothing: a plan that is cached must not name files, because each save has files of its own."""
        return plans

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write the values of this rank. They are durable when it returns. A failure leaves no file."""
        name = f"rank-{self._rank}-{RANDOM.token(8).hex()}.data"
        path = self._directory.file(name)
        fs = self._directory.fs
        try:
            with fs.open(path, "xb", parents=True, chunk_bytes=self._chunk_bytes) as file:
                results = self._write(file, name, plan.items, planner)
        except BaseException:
            with suppress(ThreefsError, ValueError):  # the reason for giving up is the error to show
                fs.remove(path)
            raise
        done: Future[list[WriteResult]] = Future()
        done.set_result(results)
        return done

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Publish the checkpoint. Files of the one that it replaces are removed."""
        metadata.version = _DCP_VERSION
        metadata.storage_data = {one.index: one.storage_data for of_rank in results for one in of_rank}
        metadata.storage_meta = self.storage_meta()
        before = self._files_of_published() if self._overwrite else set()
        self._directory.publish(metadata, rank=self._metadata_rank, replace=self._overwrite)
        after = {item.file for item in metadata.storage_data.values()}
        self._directory.fs.remove_many([self._directory.file(name) for name in sorted(before - after)])

    @property
    def checkpoint_id(self) -> str:
        """The URL of the directory."""
        return self._directory.url

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: "str | PathLike[str]") -> bool:
        """Whether it is the URL of a directory on a cluster."""
        return is_url(checkpoint_id)

    # ---- how ----

    @property
    def _publishes(self) -> bool:
        return self._is_coordinator or not self._use_collectives

    @property
    def _metadata_rank(self) -> int | None:
        return None if self._use_collectives else self._rank

    def _files_of_published(self) -> set[str]:
        try:
            return {item.file for item in self._directory.read_metadata(self._metadata_rank).storage_data.values()}
        except NotFound:
            return set()
        except ThreefsError:  # damaged: it is replaced, and the files that only it named stay
            return set()

    def _write(self, file: File, name: str, items: list[WriteItem], planner: SavePlanner) -> list[WriteResult]:
        layout = self._directory.fs.stat(self._directory.file(name)).layout
        assert layout is not None  # it is a file
        chunk_bytes = layout.chunk_bytes
        packer = ChunkPacker(chunk_bytes)
        results: list[WriteResult] = []

        def pieces() -> Iterator[Piece]:
            for item in sorted(items, key=lambda item: _size(item) >= chunk_bytes):  # small ones share chunks
                data = planner.resolve_data(item)
                size, dtype, contents = self._contents(item, data)
                offset = packer.place(size)
                results.append(WriteResult(item.index, size, StoredItem(name, offset, size, dtype)))
                for content in contents:
                    yield from packer.add(offset, content)
                    offset += len(content)
            yield from packer.rest()

        with BatchSender(self._directory.fs) as sender:  # a batch is put together while the one before it is sent
            for batch in batches(pieces(), max(1, self._staging_bytes // 3)):
                sender.send([(file, offset, content) for offset, content in batch])
        return results

    def _contents(self, item: WriteItem, data: Any) -> tuple[int, str, Iterator[memoryview]]:
        """The bytes of a value: how many, of which dtype, and themselves."""
        if item.type is WriteItemType.BYTE_IO:
            view = data.getbuffer()
            if len(view) > MAX_OBJECT_BYTES:
                raise InvalidArgument(
                    f"value {item.index.fqn!r} takes {len(view)} bytes as a pickle; at most {MAX_OBJECT_BYTES} are "
                    "stored so: keep numbers in tensors"
                )
            return len(view), "", iter([view])
        tensor = plain(data)
        if tensor.numel() != math.prod(item.tensor_data.chunk.sizes):
            raise InvalidArgument(
                f"the planner gave {tensor.numel()} numbers for {item.index.fqn!r}, which has "
                f"{math.prod(item.tensor_data.chunk.sizes)} in its plan"
            )
        contents = (view_of(part.cpu()) for part in slices(tensor, max(1, self._staging_bytes // 3)))
        return tensor.nbytes, dtype_name(tensor.dtype), contents


def _size(item: WriteItem) -> int:
    if item.tensor_data is None:
        return 0
    numbers: int = math.prod(item.tensor_data.chunk.sizes)
    return numbers * int(item.tensor_data.properties.dtype.itemsize)
