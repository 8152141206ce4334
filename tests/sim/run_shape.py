"""What a run is like, drawn from its seed: the cluster, and what its clients do.

Each run has a theme, which is what it has most of; half of them have none, and are small and quick. A little of
everything may be in any of them.
"""

from dataclasses import dataclass, replace

from threefs_storage.engine.exactly_once import MAX_ENTRIES

from tests.harness.seeded_random import SeededRandom
from tests.sim import small_disks
from tests.sim.workload import Load
from tests.sim.world import SCRUB_S, Size

#: Batches are requests of several rows that are given up while the disk is read; crowd is more writers of one chunk
#: than a record keeps results of; rare is a scrubber that comes round too late; narrow are connections that take few
#: calls and bytes at a time.
THEMES = (
    "plain",
    "plain",
    "plain",
    "plain",
    "plain",
    "batches",
    "batches",
    "large",
    "crowd",
    "locks",
    "rare",
    "narrow",
)


#: What a run may have beside its theme. It is drawn apart, so that it changes nothing else of a seed.
MORE = ("stores", "dozes", "local", "keys")
_DOZES_S = 34.0
_STALL_S = (0.3, 3.0)
_FULL_SCRUB_S, _FULL_MOVES_S = 10.0, 3.0  # at least: of runs with small disks, whose files are large
_MANAGER_DOUBT = (0.03, 0.2)
_LATE = 0.4  # of the lost answers of the managers' store are so many about commits that come late
_LATE_FOUND = (0.1, 0.6)
_MAX_AGE_MIN = 300


@dataclass(frozen=True)
class Shares:
    """The shares of all runs that have something, unless it says otherwise."""

    more: float = 0.3  # one of MORE
    scarce: float = 0.12  # bounds of processes that are reached
    moving: float = 0.2  # members of chains that move
    held: float = 0.2  # targets that an administrator holds
    lost: float = 0.1  # stores of the managers and the metadata that are lost
    removed: float = 0.5  # of those with members that move: a node that is lost for good
    stalls: float = 0.4  # storage processes that fall silent while their disk hangs
    tuned: float = 0.1  # a configuration that changes
    other_local: float = 0.5  # of those with local stores: others in the place of these for a while
    absent: float = 0.1  # disks that are missing
    brims: float = 0.05  # a disk that is full while its targets are brought up to date
    strange: float = 0.1  # disks that say something else than they do
    small: float = 0.05  # disks that stay small until the files that fill them are removed
    late_found: float = 0.1  # tables of which only the flush finds that the disk is full
    swoons: float = 0.1  # managers that fall asleep in their transactions
    hungry: float = 0.1  # machines without memory for some buffers
    losses: float = 0.15  # a loss at the end that is accepted
    doubted: float = 0.1  # many answers of the managers' store that are lost
    old: float = 0.5  # chains that are older than a run takes


USUAL = Shares()
#: A run has about half of them: slow, far from what a cluster meets, and the fastest way to find what nobody knew.
DENSE = Shares(
    more=0.6,
    scarce=0.3,
    moving=0.6,
    held=0.5,
    lost=0.5,
    removed=0.6,
    tuned=0.4,
    stalls=0.5,
    absent=0.4,
    brims=0.3,
    strange=0.6,
    small=0.4,
    late_found=0.5,
    swoons=0.5,
    hungry=0.4,
    losses=0.5,
    doubted=0.5,
)


def draw(dice: SeededRandom, seed: object, shares: Shares = USUAL) -> tuple[Size, Load]:
    theme = THEMES[dice.below(len(THEMES))]
    size, load = _size(dice, theme), _load(dice, theme)
    size = _deferring(SeededRandom(seed, "deferred"), size)
    size = replace(size, age_min=_age_min(SeededRandom(seed, "age"), shares.old))
    size, load = _scarce(SeededRandom(seed, "scarce"), size, load, shares.scarce)
    size = _moving(SeededRandom(seed, "moving"), size, shares.moving)
    size = _stalling(SeededRandom(seed, "stalls"), size, shares.stalls)
    size = _finding_late(SeededRandom(seed, "found late"), size, shares.late_found)
    size = replace(size, tuned=SeededRandom(seed, "tuned").chance(shares.tuned))
    load = replace(load, holds=SeededRandom(seed, "held").chance(shares.held))
    more = SeededRandom(seed, "added")
    if more.chance(shares.more):
        size, load = with_more(MORE[more.below(len(MORE))], size, load)
    load = replace(
        load,
        absences=SeededRandom(seed, "absent").chance(shares.absent),
        brims=SeededRandom(seed, "brim").chance(shares.brims),
        restores=SeededRandom(seed, "restored").chance(shares.lost),
        removals=SeededRandom(seed, "removed").chance(shares.removed),
        strange_disks=SeededRandom(seed, "strange disks").chance(shares.strange),
        swoons=SeededRandom(seed, "swoons").chance(shares.swoons),
        scarce_memory=SeededRandom(seed, "hungry").chance(shares.hungry),
        losses=SeededRandom(seed, "losses").chance(shares.losses),
    )
    if SeededRandom(seed, "small disks").chance(shares.small):
        size, load = with_more("small disks", size, load)
    if not size.lockers:
        size = _doubted(SeededRandom(seed, "manager doubt"), size, shares.doubted)
    if size.local_stores and SeededRandom(seed, "other local stores").chance(shares.other_local):
        size, load = with_more("stores", size, load)
    return size, load


def _doubted(dice: SeededRandom, size: Size, share: float) -> Size:
    """Managers may not lead for a while, so leases of clients end: not where somebody counts under a lock."""
    return replace(size, manager_doubt=dice.uniform(*_MANAGER_DOUBT), late=_LATE) if dice.chance(share) else size


def _finding_late(dice: SeededRandom, size: Size, share: float) -> Size:
    return replace(size, full_found_late=dice.uniform(*_LATE_FOUND)) if dice.chance(share) else size


def _age_min(dice: SeededRandom, share: float) -> int:
    """Drawn apart, too."""
    return 1 + dice.below(_MAX_AGE_MIN) if dice.chance(share) else 0


def with_more(what: str, size: Size, load: Load) -> tuple[Size, Load]:
    if what == "stores":  # who counts under a lock cannot know what a backup has forgotten
        return replace(size, lockers=0), replace(load, stores=True)
    if what == "keys":
        return replace(size, key="the key of the cluster"), replace(load, intruders=True)
    if what == "local":
        size = replace(size, managers=1, metas=1, local_stores=True, doubt=0.0, lockers=2)
        return size, replace(load, cuts=True, files_pause_s=0.1, files_bytes=3000)
    if what == "small disks":
        size = replace(size, ballast_bytes=small_disks.BALLAST_BYTES, scrub_s=max(size.scrub_s, _FULL_SCRUB_S))
        # What other clients write must have room there.
        load = replace(
            load, moves_s=max(load.moves_s, _FULL_MOVES_S) if load.moves_s else 0.0, large=min(load.large, 0.1)
        )
        return size, replace(load, small_disks=True)
    if what == "dozes":
        calm = replace(load, watchers=2, pause_s=max(load.pause_s, 0.3), files_pause_s=0.3)  # it takes long enough
        return replace(size, lockers=3), replace(calm, dozes=True, faults_s=_DOZES_S)
    return size, load


def _size(dice: SeededRandom, theme: str) -> Size:
    shapes = ((3, 1, 3), (3, 1, 3), (3, 2, 3), (4, 3, 3), (2, 1, 2), (5, 3, 3))
    storage, targets_per_disk, replicas = shapes[dice.below(len(shapes))]
    slow_net, slow_disk = dice.chance(0.4), dice.chance(0.7 if theme == "batches" else 0.4)
    return Size(
        storage=storage,
        targets_per_disk=targets_per_disk,
        replicas=replicas,
        managers=1 + dice.below(3),
        metas=1 + dice.below(2),
        clients=2 + dice.below(4),
        drift=dice.uniform(0.0, 0.05),
        attempt_s=dice.uniform(0.6, 2.0),
        net_delay_s=(0.0005, 0.03) if slow_net else (0.0001, 0.001),
        disk_delay_s=(0.0005, 0.03) if slow_disk else (0.00005, 0.0005),
        cold=0.7 if theme in ("batches", "rare") or dice.chance(0.1) else 0.1,
        scrub_s=_scrub_s(dice, theme),
        lockers=2 + dice.below(2) if theme == "locks" or dice.chance(0.1) else 0,
        calls=3 + dice.below(6) if theme == "narrow" else 4096,
        inflight_bytes=(1 + dice.below(2)) << 20 if theme == "narrow" else 256 << 20,
        doubt=dice.uniform(0.0, 0.06) if theme == "locks" or dice.chance(0.2) else 0.0,
    )


def _scrub_s(dice: SeededRandom, theme: str) -> float:
    dice.chance(0.7)  # of a choice that there is no more: what is drawn next stays as it was for each seed
    return 300.0 if theme == "rare" or dice.chance(0.2) else SCRUB_S


def _deferring(dice: SeededRandom, size: Size) -> Size:
    """Which changes are deferred, drawn apart. Content mostly has some hundred bytes."""
    if dice.chance(0.2):
        return size
    return replace(
        size,
        deferred_bytes=(100, 400, 4 << 10, 64 << 10)[dice.below(4)],
        inline_bytes=(0, 100, 400, 16 << 10)[dice.below(4)],
        deferred_changes=(1, 3, 8, 128)[dice.below(4)],
        fold_s=dice.uniform(0.1, 3.0),
    )


def _stalling(dice: SeededRandom, size: Size, share: float) -> Size:
    """Runs in which the shortest time that a disk stands still counts as a stall, drawn apart."""
    return replace(size, stall_s=dice.uniform(*_STALL_S)) if dice.chance(share) else size


def _moving(dice: SeededRandom, size: Size, share: float) -> Size:
    """Runs in which members of chains move, drawn apart."""
    return replace(size, spares=1 + dice.below(2)) if dice.chance(share) else size


def _scarce(dice: SeededRandom, size: Size, load: Load, share: float) -> tuple[Size, Load]:
    """Runs in which the bounds of processes and hosts are reached, drawn apart. Small answers need no grant, so content
    is large."""
    if not dice.chance(share):
        return size, load
    if dice.chance(0.5):
        size = replace(
            size,
            receive_senders=1 + dice.below(4),
            receive_bytes=(1 + dice.below(4)) << 18,
            held_bytes=(1 + dice.below(8)) << 18,
        )
    else:
        size = replace(
            size,
            connections=_connections(size),
            process_bytes=(2 + dice.below(3)) << 19,
            # Any request alone has room: a chunk that a crowd has written counts for more than 200 KiB.
            calls_bytes=((512 if load.crowd else 32) + dice.below(40)) << 10,
        )
        load = replace(load, visitors=True)
    return size, replace(load, large=dice.uniform(0.5, 0.9), rows=max(load.rows, 0.4))


def _connections(size: Size) -> int:
    """A storage process must take those of the cluster in any case; it reserves a quarter for peers without HELLO."""
    return 4 * (size.managers + size.storage + size.metas + size.clients + 1 + size.lockers)


def _load(dice: SeededRandom, theme: str) -> Load:
    pause_s = dice.uniform(0.01, 0.3)
    batches = theme == "batches"
    return Load(
        faults_s=dice.uniform(6.0, 18.0),
        chunks=1 if dice.chance(0.3) else 1 + dice.below(6),
        apart=dice.uniform(0.4, 1.0) if dice.chance(0.7) and not batches else 0.0,
        moves_s=dice.uniform(0.5, 5.0) if dice.chance(0.5) and theme != "crowd" else 0.0,
        pause_s=1.7 * pause_s,
        reads=dice.uniform(0.2, 0.5),
        watchers=5,
        watch_pause_s=15.0 * pause_s,
        files_pause_s=0.1 if theme == "locks" else dice.uniform(0.1, 1.0),
        files_bytes=700_000 if theme == "large" and dice.chance(0.5) else 3000,
        patience_s=dice.uniform(0.3, 3.0) if dice.chance(0.3) else 30.0,
        rows=0.8 if batches else dice.uniform(0.1, 0.5) if dice.chance(0.2) else 0.0,
        large=dice.uniform(0.2, 0.6) if theme in ("large", "narrow") else 0.1 if dice.chance(0.1) else 0.0,
        cancels=0.6 if batches else dice.uniform(0.05, 0.3) if dice.chance(0.2) else 0.0,
        crowd=MAX_ENTRIES + 4 + dice.below(16) if theme == "crowd" else 0,
    )
