"""A small language model with a mixture of experts in each layer. It computes in bfloat16.

Everything is computed for one micro-batch by itself, also in the experts, which get the tokens of all ranks. So no
number depends on how many ranks there are.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.nn import functional

Tensors = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of the model. Ranks divide the first dimension of each parameter, so each is a multiple of 8."""

    vocabulary: int = 256  # a token is a byte
    sequence: int = 64
    width: int = 64
    heads: int = 4
    layers: int = 2
    experts: int = 8
    hidden: int = 128  # of an expert
    active: int = 2  # experts for each token

    def parameters(self) -> dict[str, tuple[int, ...]]:
        width = self.width
        found: dict[str, tuple[int, ...]] = {"tokens": (self.vocabulary, width), "positions": (self.sequence, width)}
        for layer in range(self.layers):
            found |= {
                f"{layer}.attention.norm": (width,),
                f"{layer}.attention.in": (3 * width, width),
                f"{layer}.attention.out": (width, width),
                f"{layer}.mixture.norm": (width,),
                f"{layer}.mixture.router": (self.experts, width),
                f"{layer}.experts.up": (self.experts, self.hidden, width),
                f"{layer}.experts.down": (self.experts, width, self.hidden),
            }
        return found | {"norm": (width,)}


def is_expert(name: str) -> bool:
    """Whether a rank has only a part of the parameter: that of its experts."""
    return ".experts." in name


def initial(shape: Shape, seed: int) -> Tensors:
    """All parameters in float32, on every rank the same."""
    numbers = torch.Generator().manual_seed(seed)
    found = {}
    for name, size in shape.parameters().items():
        if name.endswith("norm"):
            found[name] = torch.ones(size)
        else:
            found[name] = torch.randn(size, generator=numbers) * (0.02 if len(size) < 2 else size[-1] ** -0.5)
    return found


class Model:
    """One micro-batch. `dense` are the parameters that all ranks have; `experts` has those of the experts of this rank
    once for the tokens of each rank, so that each has gradients of its own."""

    def __init__(self, shape: Shape, dense: Tensors, experts: list[Tensors]) -> None:
        self.shape = shape
        self.dense = dense
        self.experts = experts

    def loss(self, rows: Any) -> tuple[Any, Any]:
        """The loss of the language model, and that by which the experts share the work. The ranks call it together."""
        inputs, targets = rows[:, :-1], rows[:, 1:]
        stream = self.dense["tokens"][inputs] + self.dense["positions"][: inputs.shape[1]]
        balance = torch.zeros(())
        for layer in range(self.shape.layers):
            stream = stream + self._attention(layer, stream)
            mixed, uneven = self._mixture(layer, stream.reshape(-1, self.shape.width))
            stream = stream + mixed.reshape(stream.shape)
            balance = balance + uneven
        logits = _normed(stream, self.dense["norm"]) @ self.dense["tokens"].T
        loss = functional.cross_entropy(logits.float().reshape(-1, self.shape.vocabulary), targets.reshape(-1))
        return loss, balance

    def _attention(self, layer: int, stream: Any) -> Any:
        batch, length, width = stream.shape
        projected = _normed(stream, self.dense[f"{layer}.attention.norm"]) @ self.dense[f"{layer}.attention.in"].T
        parts = projected.reshape(batch, length, 3, self.shape.heads, -1).permute(2, 0, 3, 1, 4)
        query, key, value = parts.unbind(0)
        scores = (query @ key.transpose(-1, -2)).float() * query.shape[-1] ** -0.5
        later = torch.ones(length, length, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(later, float("-inf")).softmax(-1).to(value.dtype)
        return (weights @ value).transpose(1, 2).reshape(batch, length, width) @ self.dense[f"{layer}.attention.out"].T

    def _mixture(self, layer: int, stream: Any) -> tuple[Any, Any]:
        """Each token goes to `active` experts, wherever these are, and comes back."""
        shape, world = self.shape, dist.get_world_size()
        stream = _normed(stream, self.dense[f"{layer}.mixture.norm"])
        shares = (stream.float() @ self.dense[f"{layer}.mixture.router"].float().T).softmax(-1)
        gates, chosen = shares.topk(shape.active, dim=-1)
        order = chosen.reshape(-1).argsort(stable=True)
        sent = torch.bincount(chosen.reshape(-1), minlength=shape.experts).reshape(world, -1)
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent)
        outgoing, incoming = sent.sum(1).tolist(), received.sum(1).tolist()
        arrived = Exchange.apply(stream[order // shape.active], outgoing, incoming)
        answered = Exchange.apply(self._experts(layer, arrived, received.tolist()), incoming, outgoing)
        back = answered[order.argsort()].reshape(-1, shape.active, shape.width)
        mixed = (back.float() * (gates / gates.sum(-1, keepdim=True)).unsqueeze(-1)).sum(1)
        used = sent.reshape(-1).float() / sent.sum()
        return mixed.to(stream.dtype), shape.experts * (used * shares.mean(0)).sum()

    def _experts(self, layer: int, arrived: Any, counts: list[list[int]]) -> Any:
        """`counts`: rows for each of our experts, from each rank."""
        pieces = iter(arrived.split([count for row in counts for count in row]))
        outputs = []
        for of_rank, row in zip(self.experts, counts, strict=True):
            ups, downs = (of_rank[f"{layer}.experts.{part}"].unbind(0) for part in ("up", "down"))
            for up, down, _ in zip(ups, downs, row, strict=True):
                outputs.append(functional.gelu(next(pieces) @ up.T) @ down.T)
        return torch.cat(outputs)


def _normed(stream: Any, weight: Any) -> Any:
    wide = stream.float()
    scale = (wide.square().mean(-1, keepdim=True) + 1e-5).rsqrt()
    return (wide * scale * weight.float()).to(stream.dtype)


class Exchange(torch.autograd.Function):
    """Rows go to other ranks; their gradients come back."""

    @staticmethod
    def forward(ctx: Any, rows: Any, outgoing: list[int], incoming: list[int]) -> Any:
        ctx.counts = outgoing, incoming
        return _exchanged(rows, outgoing, incoming)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        outgoing, incoming = ctx.counts
        return _exchanged(gradient, incoming, outgoing), None, None


def _exchanged(rows: Any, outgoing: list[int], incoming: list[int]) -> Any:
    """As plain bytes, because gloo does not have all types."""
    found = torch.empty(sum(incoming), rows.shape[1], dtype=rows.dtype)
    dist.all_to_all_single(found.view(torch.uint8), rows.contiguous().view(torch.uint8), incoming, outgoing)
    return found
