"""Random histories of a training that stops, and is resumed on other numbers of ranks with other batches.

`python -m tests.harness.loader_histories 10000` runs that many and says what was lost or doubled.
"""

import json
import random
import sys
from collections import Counter

import numpy as np
from threefs_data.mixture import Mixture
from threefs_data.order import Order, Shuffled
from threefs_data.schedule import Position, Schedule


def _order(source: random.Random) -> Order:
    if source.random() < 0.5:
        return Shuffled(source.choice([1, 2, 7, 64, 100, 1000]))
    lengths = tuple(source.randint(50, 300) for _ in range(source.randint(1, 3)))
    return Mixture(lengths, tuple(source.uniform(0.1, 3) for _ in lengths), source.randint(1, 500))


def run(seed: int) -> tuple[int, int]:
    """The numbers of places that were lost, and that were taken twice, in two or more epochs of one history."""
    source = random.Random(seed)
    order = _order(source)
    position = Position(seed=source.getrandbits(40), fingerprint="same")
    epochs = source.randint(1, 2)
    taken: dict[int, Counter[int]] = {}
    while position.epoch < epochs:
        world, batch = source.randint(1, 9), source.randint(1, 200)
        ranks = [Schedule(order.samples, batch, rank, world) for rank in range(world)]
        for _ in range(source.randint(1, 12)):
            places = np.concatenate([rank.places(position.consumed) for rank in ranks])
            numbers = order.numbers(position.seed, position.epoch, places)
            taken.setdefault(position.epoch, Counter()).update(numbers.tolist())
            positions = {rank.after(position) for rank in ranks}
            assert len(positions) == 1, "ranks disagree about how far the training has come"
            (position,) = positions
        position = Position.from_state(json.loads(json.dumps(position.state_dict())), "same")
    lost = doubled = 0
    for epoch in range(epochs):
        whole = Counter(order.numbers(position.seed, epoch, np.arange(order.samples)).tolist())
        lost += (whole - taken[epoch]).total()
        doubled += (taken[epoch] - whole).total()
    return lost, doubled


def main() -> int:
    count = int(sys.argv[1])
    results = [run(seed) for seed in range(count)]
    lost, doubled = sum(row[0] for row in results), sum(row[1] for row in results)
    print(f"{count} histories: {lost} lost, {doubled} doubled")
    return int(lost or doubled)


if __name__ == "__main__":
    sys.exit(main())
