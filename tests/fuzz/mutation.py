"""Bad input made from good input."""

import random
from collections.abc import Sequence

_EDGES = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, (1 << 63) - 1, (1 << 64) - 1)


def mutated(dice: random.Random, examples: Sequence[bytes]) -> bytes:
    """One of the examples with a few changes; now and then bytes of no origin, or the example itself."""
    if dice.random() < 0.1:
        return dice.randbytes(dice.randrange(200))
    data = bytearray(dice.choice(examples))
    for _ in range(dice.randrange(4)):
        dice.choice(_CHANGES)(dice, data, examples)
    return bytes(data)


def _flip(dice: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    if data:
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)


def _replace(dice: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    if data:
        at = dice.randrange(len(data))
        data[at : at + dice.randrange(1, 9)] = dice.randbytes(dice.randrange(9))


def _edge(dice: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    size = dice.choice((1, 2, 4, 8))
    at = dice.randrange(len(data) + 1)
    value = dice.choice(_EDGES) & ((1 << 8 * size) - 1)
    data[at : at + size] = value.to_bytes(size, dice.choice(("little", "big")))


def _cut(dice: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    del data[dice.randrange(len(data) + 1) :]


def _repeat(dice: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    at = dice.randrange(len(data) + 1)
    piece = data[at : at + dice.randrange(1, 64)]
    data[at:at] = piece * dice.randrange(1, 20)


def _splice(dice: random.Random, data: bytearray, examples: Sequence[bytes]) -> None:
    other = dice.choice(examples)
    data[dice.randrange(len(data) + 1) :] = other[dice.randrange(len(other) + 1) :]


_CHANGES = (_flip, _flip, _replace, _edge, _cut, _repeat, _splice)
