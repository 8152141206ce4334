"""One rank of the training: its share of each batch, its experts, and its slice of the optimizer.

The gradients of the micro-batches are added in the order of the batch, whichever ranks have computed them. Every other
sum is over one micro-batch. So the result of a step is the same, bit by bit, on 1, 2, 4 or 8 ranks.
"""

from typing import Any

import torch
import torch.distributed as dist
from threefs_checkpoint import Derived, Index, Shard, Slice

from examples.moe.model import Model, Shape, Tensors, initial, is_expert

#: Of a batch. A rank computes its share of them, one after the other.
MICRO_BATCHES = 8
_BALANCE = 0.01
_RATE, _FIRST, _SECOND, _DECAY, _WARM_UP = 3e-3, 0.9, 0.98, 0.01, 10

#: What the optimizer keeps of each parameter, in float32.
_KEPT = ("master", "first", "second")


class Trainer:
    def __init__(self, shape: Shape, seed: int) -> None:
        self.shape = shape
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.step = 0
        whole = initial(shape, seed)
        self.sizes = {name: tuple(tensor.shape) for name, tensor in whole.items()}
        #: The slice of this rank of what the optimizer keeps.
        self.optimizer: dict[str, Tensors] = {
            "master": {name: self._slice(tensor).clone() for name, tensor in whole.items()},
            "first": {name: torch.zeros_like(self._slice(tensor)) for name, tensor in whole.items()},
            "second": {name: torch.zeros_like(self._slice(tensor)) for name, tensor in whole.items()},
        }
        #: The parameters with which this rank computes.
        self.model: Tensors = {}
        self._gather_parameters()

    def _slice(self, tensor: Any) -> Any:
        return tensor.chunk(self.world)[self.rank]

    # ---- a step ----

    def train(self, rows: Any) -> float:
        """Learn from this rank's share of a batch. Returns the loss of the whole batch."""
        share = MICRO_BATCHES // self.world
        dense = [self._leaves(False) for _ in range(share)]
        experts = [self._leaves(True) for _ in range(MICRO_BATCHES)]
        losses = torch.zeros(share)
        for number, micro in enumerate(rows.chunk(share)):
            # at the same time each rank computes such a micro-batch, whose tokens come to our experts
            model = Model(self.shape, dense[number], experts[number::share])
            loss, balance = model.loss(micro)
            (loss + _BALANCE * balance).backward()
            losses[number] = loss.detach()
        self.step += 1
        gradients = self._dense_gradients(dense) | {
            name: _ordered_mean([leaves[name].grad for leaves in experts]) for name in experts[0]
        }
        for name, gradient in gradients.items():
            self._update(name, gradient)
        self._gather_parameters()
        return float(_ordered_mean(_gathered(losses).reshape(-1).unbind(0)))

    def _leaves(self, of_experts: bool) -> Tensors:
        """The parameters, over the same memory, with gradients of their own."""
        return {
            name: tensor.detach().requires_grad_()
            for name, tensor in self.model.items()
            if is_expert(name) == of_experts
        }

    def _dense_gradients(self, leaves: list[Tensors]) -> Tensors:
        """Of this rank's slices: every rank sends each other one its slices, of all its micro-batches."""
        slices = [
            torch.cat([each[name].grad.reshape(self.world, -1) for name in each], 1) for each in leaves
        ]  # rank, numbers of its slices
        outgoing = torch.stack(slices, 1).contiguous()
        incoming = torch.empty_like(outgoing)
        dist.all_to_all_single(incoming.view(torch.uint8), outgoing.view(torch.uint8))
        total = _ordered_mean(incoming.reshape(MICRO_BATCHES, -1).unbind(0))
        masters = [self.optimizer["master"][name] for name in leaves[0]]
        parts = total.split([master.numel() for master in masters])
        return {name: part.reshape(master.shape) for name, part, master in zip(leaves[0], parts, masters, strict=True)}

    def _update(self, name: str, gradient: Any) -> None:
        """AdamW, on this rank's slice."""
        master, first, second = (self.optimizer[kept][name] for kept in _KEPT)
        rate = _RATE * min(1.0, self.step / _WARM_UP)
        first.mul_(_FIRST).add_(gradient * (1 - _FIRST))
        second.mul_(_SECOND).add_(gradient * gradient * (1 - _SECOND))
        change = (first / (1 - _FIRST**self.step)) / ((second / (1 - _SECOND**self.step)).sqrt() + 1e-8)
        master.sub_(rate * (change + _DECAY * master))

    def _gather_parameters(self) -> None:
        """The masters in bfloat16: whole, or of our experts."""
        mine = {name: master.to(torch.bfloat16) for name, master in self.optimizer["master"].items()}
        self.model = {name: tensor for name, tensor in mine.items() if is_expert(name)}
        names = [name for name in mine if not is_expert(name)]
        packed = _gathered(torch.cat([mine[name].reshape(-1) for name in names]).view(torch.uint8))
        parts = packed.view(torch.bfloat16).split([mine[name].numel() for name in names], 1)
        self.model |= {name: part.reshape(self.sizes[name]) for name, part in zip(names, parts, strict=True)}

    # ---- checkpoints ----

    @property
    def masters(self) -> dict[str, Derived]:
        """A full checkpoint has no parameters: they are the masters, rounded."""
        return {f"model.{name}": Derived("bfloat16", f"optimizer.master.{name}") for name in self.sizes}

    def state(self) -> dict[str, Shard]:
        """What this rank holds of each tensor."""
        found = {}
        for name, size in self.sizes.items():
            for kept in _KEPT:
                part = self.optimizer[kept][name]
                found[f"optimizer.{kept}.{name}"] = Shard(part.numpy(), size, self._held(name, sliced=True).offset)
            bits = self.model[name].view(torch.uint16).numpy()
            found[f"model.{name}"] = Shard(bits, size, self._held(name).offset, "bfloat16")
        return found

    def wanted(self, index: Index) -> dict[str, Slice]:
        """What this rank loads, whichever ranks have saved it."""
        found = {f"model.{name}": self._held(name) for name in self.sizes}
        for kept in _KEPT:
            found |= {f"optimizer.{kept}.{name}": self._held(name, sliced=True) for name in self.sizes}
        return found

    def _held(self, name: str, *, sliced: bool = False) -> Slice:
        size = self.sizes[name]
        if not (sliced or is_expert(name)):
            return Slice((0,) * len(size), size)
        rows = size[0] // self.world
        return Slice((self.rank * rows, *(0,) * (len(size) - 1)), (rows, *size[1:]))

    def restore(self, step: int, tensors: dict[str, Any]) -> None:
        self.step = step
        for name in self.sizes:
            for kept in _KEPT:
                self.optimizer[kept][name].copy_(torch.from_numpy(tensors[f"optimizer.{kept}.{name}"]))
            self.model[name] = torch.from_numpy(tensors[f"model.{name}"]).view(torch.bfloat16)


def _ordered_mean(parts: Any) -> Any:
    """In float32, added one after the other."""
    total = parts[0].float()
    for part in parts[1:]:
        total = total + part.float()
    return total / len(parts)


def _gathered(tensor: Any) -> Any:
    """That of each rank, as rows."""
    found = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(found, tensor)
    return torch.stack(found)
