"""The group of torch.distributed: all ranks of a job, over gloo, whatever the training itself uses."""

from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from threefs_checkpoint.group import Buffers, Group


class TorchGroup(Group):
    """All ranks of the default process group, which is initialized. Its messages go over a process group of its own."""

    def __init__(self) -> None:
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self._group: Any = dist.new_group(backend="gloo")

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
            dist.irecv(_tensor(place), source, group=self._group)
            for source, places in incoming.items()
            for place in places
        ]
        waits += [
            dist.isend(_tensor(view), target, group=self._group) for target, views in outgoing.items() for view in views
        ]
        for wait in waits:
            wait.wait()

    def twin(self) -> Group:
        return TorchGroup()

    def close(self) -> None:
        dist.destroy_process_group(self._group)


def _tensor(view: memoryview) -> Any:
    """A tensor over the same memory."""
    array = np.frombuffer(view, np.uint8)
    array.flags.writeable = array.flags.writeable or not view.readonly
    return torch.from_numpy(array)
