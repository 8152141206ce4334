"""Bits that flip in several copies of a chunk at once."""

from tests.harness.seeded_random import SeededRandom
from tests.sim.chain_copies import staying_members, target_of
from tests.sim.world import World


def flip_all_but_one(world: World, dice: SeededRandom, host: str) -> bool:
    """Of one chunk of that host, in copies that are good, and where the chain is not whole, too: one copy that is good
    is enough, wherever it is. Where members move only in one of them: who has a member that is out removed gives up
    what it has, and the good copy may be there. Whether the host has any chunk."""
    disks = world.disks
    mine = disks[host].copies()
    if not mine:
        return False
    _, chunk, version = mine[dice.below(len(mine))]
    same = (version.version, version.length, version.checksum)
    members = staying_members(world)
    good = [
        (disk, path, other)
        for disk in disks.values()
        for path, number, other in disk.copies()
        if number == chunk
        and target_of(path) in members
        and (other.version, other.length, other.checksum) == same
        and disk.is_good(path, chunk, other)
    ]
    world.rotted = True
    flips = dice.below(max(1, len(good)))
    for _ in range(min(flips, 1) if world.spare_hosts else flips):
        disk, path, other = good.pop(dice.below(len(good)))
        world.tell(f"-- {disk.flip(dice, path, chunk, other)} flips")
    return True
