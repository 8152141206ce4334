"""The group of torch.distributed: ranks of a job, over gloo, whatever the training itself uses."""

from contextlib import suppress
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from threefs.errors import InvalidArgument
from threefs_checkpoint.group import Buffers, Group


class TorchGroup(Group):
    """All ranks of a process group, by default of the one that is initialized for the whole job. Its messages go over
    a process group of its own."""

    def __init__(self, among: Any = None) -> None:
        """Every rank of `among` makes one. Raises InvalidArgument on another rank."""
        self._among = among
        self._ranks: list[int] = dist.get_process_group_ranks(among)
        if dist.get_rank() not in self._ranks:
            raise InvalidArgument(f"rank {dist.get_rank()} is not of the process group of ranks {self._ranks}")
        self.rank, self.world = self._ranks.index(dist.get_rank()), len(self._ranks)
        self._group: Any = dist.new_group(
            self._ranks, backend="gloo", use_local_synchronization=self.world < dist.get_world_size()
        )

    def all_gather(self, message: bytes) -> list[bytes]:
        length = torch.tensor([len(message)])
        lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(self.world)]
        dist.all_gather(lengths, length, group=self._group)
        sizes = [int(each) for each in lengths]
        own = torch.zeros(max(1, *sizes), dtype=torch.uint8)
        if message:
            own[: len(message)] = torch.frombuffer(bytearray(message), dtype=torch.uint8)
        found = [torch.empty_like(own) for _ in range(self.world)]
        dist.all_gather(found, own, group=self._group)
        return [each[:size].numpy().tobytes() for each, size in zip(found, sizes, strict=True)]

    def exchange(self, outgoing: Buffers, incoming: Buffers) -> None:
        waits = [
            dist.irecv(_tensor(place), self._ranks[source], group=self._group)
            for source, places in incoming.items()
            for place in places
        ]
        waits += [
            dist.isend(_tensor(view), self._ranks[target], group=self._group)
            for target, views in outgoing.items()
            for view in views
        ]
        for wait in waits:
            wait.wait()

    def twin(self) -> Group:
        return TorchGroup(self._among)

    def close(self) -> None:
        """Also a second time, and where the job has ended torch.distributed before."""
        group, self._group = self._group, None
        if group is not None:
            with suppress(ValueError):  # torch does not know it any more
                dist.destroy_process_group(group)


def _tensor(view: memoryview) -> Any:
    """A tensor over the same memory."""
    array = np.frombuffer(view, np.uint8)
    array.flags.writeable = array.flags.writeable or not view.readonly
    return torch.from_numpy(array)
