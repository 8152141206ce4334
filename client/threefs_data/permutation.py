"""A shuffle that needs no memory: the place of each sample in an epoch is computed, not stored.

A Feistel network over the smallest even number of bits that can hold all numbers is a permutation of 0 .. 4**h - 1;
numbers that leave 0 .. length - 1 are sent through it again until they are back inside.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from threefs.errors import InvalidArgument

#: One, or many of them.
Words = np.uint64 | NDArray[np.uint64]

_ROUNDS = 6
_MASK64 = (1 << 64) - 1


class Permutation:
    """The order of `length` numbers in one epoch. Equal for equal (length, seed, epoch), on every machine."""

    def __init__(self, length: int, seed: int, epoch: int) -> None:
        if not (0 <= seed < 1 << 63 and 0 <= epoch < 1 << 63):
            raise InvalidArgument("seed and epoch must be from 0 to 2**63 - 1")
        self.length = length
        self._network = _Network(length)
        self._keys = _keys(seed, np.uint64(epoch))

    def __call__(self, places: NDArray[np.integer]) -> NDArray[np.uint64]:
        """Which numbers stand at these places, each from 0 to length - 1."""
        numbers = self._network.step(places.astype(np.uint64), self._keys)
        while (outside := numbers >= self.length).any():
            numbers[outside] = self._network.step(numbers[outside], self._keys)
        return numbers


def in_epochs(length: int, seed: int, epochs: NDArray[np.int64], places: NDArray[np.integer]) -> NDArray[np.uint64]:
    """What `Permutation(length, seed, epoch)` has at each place, for places of many epochs at a time."""
    network = _Network(length)
    keys = np.array(_keys(seed, epochs.astype(np.uint64)))
    numbers = network.step(places.astype(np.uint64), list(keys))
    while len(outside := np.flatnonzero(numbers >= length)):
        numbers[outside] = network.step(numbers[outside], list(keys[:, outside]))
    return numbers


class _Network:
    def __init__(self, length: int) -> None:
        if not 0 <= length < 1 << 48:
            raise InvalidArgument(f"cannot shuffle {length} samples")
        half_bits = max(1, (max(length - 1, 1).bit_length() + 1) // 2)
        self._half_bits = np.uint64(half_bits)
        self._half_mask = np.uint64((1 << half_bits) - 1)

    def step(self, numbers: NDArray[np.uint64], keys: Sequence[Words]) -> NDArray[np.uint64]:
        left, right = numbers >> self._half_bits, numbers & self._half_mask
        for key in keys:
            left, right = right, left ^ (_hashed(right, key) & self._half_mask)
        mixed: NDArray[np.uint64] = (left << self._half_bits) | right
        return mixed


def _keys(seed: int, epochs: Words) -> list[Words]:
    """Of the rounds, in one epoch or in each of several."""
    state = _mixed_words(np.uint64(_mixed(seed)) ^ epochs)
    found = []
    for _ in range(_ROUNDS):
        state = _mixed_words(state)
        found.append(state)
    return found


def derived_seed(seed: int, purpose: int) -> int:
    """A seed for one of several uses of the same seed."""
    return _mixed(_mixed(seed) ^ _mixed(purpose + 1)) >> 1


def _hashed(numbers: NDArray[np.uint64], key: Words) -> NDArray[np.uint64]:
    """Multiply and fold, so that every bit of a number and of the key reaches the low bits (wraps modulo 2**64)."""
    hashed = (numbers ^ key) * np.uint64(0x9E3779B97F4A7C15)
    hashed ^= hashed >> np.uint64(32)
    hashed *= np.uint64(0xD6E8FEB86659FD93)
    hashed ^= hashed >> np.uint64(32)
    return hashed


def _mixed(state: int) -> int:
    """One step of a 64-bit mixer."""
    return int(_mixed_words(np.uint64(state & _MASK64)))


def _mixed_words(state: Words) -> Words:
    """The same of one or many words (wraps modulo 2**64)."""
    with np.errstate(over="ignore"):  # numpy warns of single words only
        state = state + np.uint64(0x9E3779B97F4A7C15)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed: Words = state ^ (state >> np.uint64(31))
        return mixed
