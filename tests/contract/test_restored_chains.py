"""A chain and its manager in drawn histories, with backups of the manager's store and restores of them at any moment.

Whoever serves has all that was ever acknowledged (I2). The decisions are the real ones; the rest is what the protocol
promises of targets. Taking either rule of a restore away loses writes, so the histories are long enough.
"""

import dataclasses
import random

import pytest
from threefs_manager.chains.transitions import next_chain
from threefs_manager.store import restored_versions

from threefs.ids import ChainId, TargetId
from threefs.routing import Chain, ChainMember, LocalState, PublicState

SERVING, SYNCING = PublicState.SERVING, PublicState.SYNCING
HISTORIES, STEPS = 1_500, 60


@dataclasses.dataclass
class Replica:
    alive: bool
    known: Chain  # what it acts by
    kept: Chain  # what survives its death
    has: int = 0  # of the acknowledged writes


class World:
    def __init__(self, dice: random.Random, count: int, *, keeps: bool, asks: bool) -> None:
        targets = [TargetId(number) for number in range(1, count + 1)]
        self.chain = Chain(ChainId(1), 1, tuple(ChainMember(target, SERVING) for target in targets))
        self.replicas = {target: Replica(True, self.chain, self.chain) for target in targets}
        self.acknowledged = 0
        self.minutes = 0
        self._backup = self.chain
        self._dice = dice
        self._keeps = keeps
        self._asks = asks

    def step(self) -> None:
        steps = [self.die, self.start, self.learn, self.manage, self.write, self.sync, self.forget_power]
        rare = [self.back_up, self.restore]
        self._dice.choice(steps * 4 + rare)()
        for target, replica in self.replicas.items():
            if self.serves(target):
                assert replica.has == self.acknowledged, f"target {target} serves, and lacks what was acknowledged"

    def drawn(self) -> TargetId:
        return self._dice.choice(list(self.replicas))

    def acts(self, target: TargetId, *states: PublicState) -> bool:
        """It has a lease: the manager grants one only for its newest version."""
        replica = self.replicas[target]
        return replica.alive and replica.known == self.chain and self.chain.state(target) in states

    def serves(self, target: TargetId) -> bool:
        return self.acts(target, SERVING)

    def die(self) -> None:
        self.replicas[self.drawn()].alive = False

    def start(self) -> None:
        replica = self.replicas[self.drawn()]
        if not replica.alive:
            replica.alive, replica.known = True, replica.kept

    def forget_power(self) -> None:
        """All at once."""
        for replica in self.replicas.values():
            replica.alive = self._dice.random() < 0.3

    def learn(self) -> None:
        replica = self.replicas[self.drawn()]
        if replica.alive and replica.known.version < self.chain.version:
            replica.known = self.chain
            if self._keeps:
                replica.kept = self.chain

    def manage(self) -> None:
        self.chain = next_chain(self.chain, {target: self._local(target) for target in self.replicas})

    def _local(self, target: TargetId) -> LocalState | None:
        replica, state = self.replicas[target], self.chain.state(target)
        if not replica.alive:
            return LocalState.OFFLINE
        if replica.known.version != self.chain.version:
            return LocalState.ONLINE if state in (SERVING, SYNCING) else None
        return LocalState.UPTODATE if state is SERVING or self._equal(target) else LocalState.ONLINE

    def _equal(self, target: TargetId) -> bool:
        return self.chain.state(target) is SYNCING and self.replicas[target].has == self.acknowledged

    def sync(self) -> None:
        target = self.drawn()
        if self.acts(target, SYNCING) and self.chain.tail is not None and self.serves(self.chain.tail):
            self.replicas[target].has = self.acknowledged

    def write(self) -> None:
        """It is acknowledged when all that it reaches have it, in one version."""
        reached = [member.target_id for member in self.chain.members if member.state in (SERVING, SYNCING)]
        if self.chain.serving and all(self.acts(target, SERVING, SYNCING) for target in reached):
            self.acknowledged += 1
            for target in reached:
                if self.chain.state(target) is SERVING or self.replicas[target].has == self.acknowledged - 1:
                    self.replicas[target].has = self.acknowledged

    def back_up(self) -> None:
        self._backup = self.chain

    def restore(self) -> None:
        """All stores have told; those of processes that have died too, when they were started."""
        told = [replica.kept for replica in self.replicas.values()] if self._asks else []
        newest = max([self._backup, *told], key=lambda chain: chain.version)
        self.minutes += 1
        wall_ns = restored_versions._EPOCH_S * 10**9 + self.minutes * 60 * 10**9
        self.chain = restored_versions.with_raised_version(restored_versions.without_serving(newest), wall_ns)


def play(count: int, *, keeps: bool = True, asks: bool = True) -> None:
    restores = 0
    for seed in range(HISTORIES):
        world = World(random.Random(seed), count, keeps=keeps, asks=asks)
        for _ in range(STEPS):
            world.step()
        restores += world.minutes
    assert restores > HISTORIES // 10, "else nothing was tried"


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_serving_target_has_all_that_was_acknowledged(count: int) -> None:
    play(count)


@pytest.mark.parametrize("rules", [{"keeps": False}, {"asks": False}], ids=["nothing is kept", "nobody is asked"])
@pytest.mark.parametrize("count", [2, 3])
def test_each_rule_of_a_restore_is_needed(count: int, rules: dict[str, bool]) -> None:
    with pytest.raises(AssertionError, match="lacks what was acknowledged"):
        play(count, **rules)
