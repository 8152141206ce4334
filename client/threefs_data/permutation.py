"""A shuffle that needs no memory: the place of each sample in an epoch is computed, not stored.

A Feistel network over the smallest even number of bits that can hold all numbers is a permutation of 0 .. 4**h - 1;
numbers that leave 0 .. length - 1 are sent through it again until they are back inside.
"""

import numpy as np
from numpy.typing import NDArray

from threefs.errors import InvalidArgument

_ROUNDS = 6
_MASK64 = (1 << 64) - 1


class Permutation:
    """The order of `length` numbers in one epoch. Equal for equal (length, seed, epoch), on every machine."""

    def __init__(self, length: int, seed: int, epoch: int) -> None:
        if not 0 <= length < 1 << 48:
            raise InvalidArgument(f"cannot shuffle {length} samples")
        if not (0 <= seed < 1 << 63 and 0 <= epoch < 1 << 63):
            raise InvalidArgument("seed and epoch must be from 0 to 2**63 - 1")
        self.length = length
        half_bits = max(1, (max(length - 1, 1).bit_length() + 1) // 2)
        self._half_bits = np.uint64(half_bits)
        self._half_mask = np.uint64((1 << half_bits) - 1)
        state = _mixed(_mixed(seed) ^ epoch)
        self._keys: list[np.uint64] = []
        for _ in range(_ROUNDS):
            state = _mixed(state)
            self._keys.append(np.uint64(state))

    def __call__(self, places: NDArray[np.integer]) -> NDArray[np.uint64]:
        """Which numbers stand at these places, each from 0 to length - 1."""
        numbers = self._step(places.astype(np.uint64))
        while (outside := numbers >= self.length).any():
            numbers[outside] = self._step(numbers[outside])
        return numbers

    def _step(self, numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
        left, right = numbers >> self._half_bits, numbers & self._half_mask
        for key in self._keys:
            left, right = right, left ^ (_hashed(right, key) & self._half_mask)
        mixed: NDArray[np.uint64] = (left << self._half_bits) | right
        return mixed


def derived_seed(seed: int, purpose: int) -> int:
    """A seed for one of several uses of the same seed."""
    return _mixed(_mixed(seed) ^ _mixed(purpose + 1)) >> 1


def _hashed(numbers: NDArray[np.uint64], key: np.uint64) -> NDArray[np.uint64]:
    """Multiply and fold, so that every bit of a number and of the key reaches the low bits (wraps modulo 2**64)."""
    hashed = (numbers ^ key) * np.uint64(0x9E3779B97F4A7C15)
    hashed ^= hashed >> np.uint64(32)
    hashed *= np.uint64(0xD6E8FEB86659FD93)
    hashed ^= hashed >> np.uint64(32)
    return hashed


def _mixed(state: int) -> int:
    """One step of a 64-bit mixer, for the round keys."""
    state = (state + 0x9E3779B97F4A7C15) & _MASK64
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK64
    return state ^ (state >> 31)
