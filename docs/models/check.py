"""Checks the models with spin: the protocol as it is, and with one rule after another taken away.

    python3 check.py quick              small configurations, and that taking a rule away is noticed: a minute
    python3 check.py base               the rules as they are, every configuration; exits 1 on a violation (5 minutes)
    python3 check.py ablate [FLAG ...]  all ablations, or the named ones; prints a table
    python3 check.py parallel           chain2.pml: replicas persist at the same time (PARALLEL.md); exits as base
    python3 check.py parallel-ablate [FLAG ...]   its rules, one after the other taken away
    python3 check.py leader             election, hand-over of leases, an older copy of the store; with ablations
    python3 check.py trace FLAG         the shortest violation found for one ablation, in words
    python3 check.py trace FLAG --config "N=2 WRITES=1"
    python3 check.py trace FLAG --parallel

Needs spin 6.5 and gcc. Everything is built under ./build.
"""

import argparse
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUILD = Path("build")
JOBS = 2
MEMORY_MIB = 9000
BITSTATE_BITS = 35  # 4 GiB of bits

# ---------------------------------------------------------------- the rules as proposed
BASE = [  # every state
    "N=3 WRITES=2 CRASHES=1 LAPSES=1 READS=1",
    "N=3 WRITES=2 CRASHES=2 LAPSES=0 READS=1",
    "N=3 WRITES=1 CRASHES=1 LAPSES=1 READS=1 TIMEOUTS=1",
    "N=3 WRITES=1 CRASHES=2 LAPSES=0 READS=1 STRAYS=1",
    "N=2 WRITES=2 CRASHES=2 LAPSES=1 READS=2",
    "N=2 WRITES=2 CRASHES=1 LAPSES=1 READS=1 STRAYS=1 TIMEOUTS=1",
    "N=2 WRITES=3 CRASHES=1 LAPSES=1 READS=1 TRIES=1",
    "N=3 WRITES=1 TRIES=1 CRASHES=0 LAPSES=0 READS=1 POWER_CUTS=1 WITNESS",
]
BASE_BITSTATE = [  # too many for memory: bit-state hashing
    "N=3 WRITES=1 CRASHES=2 LAPSES=1 READS=1",
    "N=3 WRITES=2 CRASHES=1 LAPSES=1 READS=1 STRAYS=1 TIMEOUTS=1",
]

# ---------------------------------------------------------------- ablations: flag -> (rule taken away, configurations)
TWO = "N=2 WRITES=2 CRASHES=1 LAPSES=1 READS=1"
TWO_CRASHES = "N=2 WRITES=2 CRASHES=2 LAPSES=0 READS=1"
THREE = "N=3 WRITES=2 CRASHES=1 LAPSES=1 READS=1 TRIES=1"
THREE_CRASHES = "N=3 WRITES=2 CRASHES=2 LAPSES=0 READS=1 TRIES=1"
STRAY = "N=2 WRITES=2 CRASHES=1 LAPSES=1 READS=1 TRIES=1 STRAYS=1 TIMEOUTS=1"
STRAY_THREE = "N=3 WRITES=2 CRASHES=1 LAPSES=1 READS=1 TRIES=1 STRAYS=1"
POWER = "N=3 WRITES=1 TRIES=1 CRASHES=0 LAPSES=0 READS=1 POWER_CUTS=1"
THREE_SMALL = "N=3 WRITES=1 CRASHES=1 LAPSES=1 READS=1 TRIES=1"
THREE_CRASH = "N=3 WRITES=2 CRASHES=1 LAPSES=0 READS=1"
STRAY_SMALL = "N=3 WRITES=1 CRASHES=1 LAPSES=1 READS=0 TRIES=1 STRAYS=1"
PLAIN = [TWO, TWO_CRASHES, THREE_SMALL, THREE_CRASH]
CALLS = [STRAY, STRAY_SMALL, THREE_CRASH]

ABLATIONS = {
    "NO_ASK_TAIL": ("a replica with a pending version asks the tail", PLAIN),
    "QUERY_LAST_SERVING": (
        "the target asked is the last that writes reach, syncing included (not: last serving)",
        PLAIN,
    ),
    "NO_VERSION_IN_QUERY": ("the target asked checks the chain version of the query", PLAIN),
    "NO_QUERY_LEASE": ("the target asked holds a lease", PLAIN),
    "NO_READ_LEASE": ("a target that reads holds a lease", PLAIN),
    "NO_WRITE_LEASE": ("a target that takes a write, forward or replace holds a lease", PLAIN),
    "NO_FINISH_BEFORE_READ": ("older pending is finished before a read", PLAIN),
    "FINISH_BEFORE_READ_AT_TAIL_ONLY": ("... also at targets that are not the tail", PLAIN),
    "NO_FINISH_BEFORE_QUERY": ("older pending is finished before a version query is answered", PLAIN),
    "NO_FINISH_BEFORE_WRITE": ("older pending is finished before a write is taken", PLAIN),
    "NO_FINISH_BEFORE_RESYNC": ("older pending is finished before the chunk is resynced", PLAIN),
    "NO_PERSIST_BEFORE_FORWARD": ("pending is durable before it is forwarded", PLAIN),
    "TAIL_NOT_DURABLE": ("the tail's version is durable before it answers", PLAIN),
    "TAIL_COMMIT_UNSYNCED": ("... durable as committed (removed: durable as pending only)", PLAIN),
    "COMMIT_BEFORE_SUCCESSOR": ("the head acknowledges only after its successor", PLAIN),
    "NO_LEASE_WAIT": ("the manager waits for the lease to end before it demotes", PLAIN),
    "NO_VERSION_FOR_LEASE": ("a lease is renewed only for a target that knows of its own demotion", PLAIN),
    "NO_RESTART_DEMOTION": ("a restarted target stays offline until its old incarnation is demoted", PLAIN),
    "NO_RESTART_DEMOTION TAIL_COMMIT_UNSYNCED": ("... with a tail that syncs only pending", PLAIN),
    "NO_VERSION_FOR_READMISSION": ("a target becomes syncing only after it has learnt its demotion", PLAIN),
    "NO_ABORT_ON_DEMOTION": ("a target that learns of its demotion drops its handlers", PLAIN),
    "NO_DROP_PENDING": ("a syncing target drops what was pending before, before it serves", PLAIN),
    "SYNCING_LIKE_SERVING": ("a syncing target replaces, whatever versions it held before", PLAIN),
    "SYNCING_LIKE_SERVING NO_DROP_PENDING": ("... both of them", PLAIN),
    "NO_WHOLE_CHUNK": ("a forward to a syncing target carries the whole chunk", PLAIN),
    "NO_VERSION_AT_SUCCESSOR": ("the successor checks the chain version", CALLS),
    "NO_VERSION_UNDER_LOCK": ("... checks it again under the chunk lock", CALLS),
    "NO_VERSION_UNDER_LOCK WAITERS_DROPPED_ON_DEMOTION": ("... nor, but a demotion drops those that wait", CALLS),
    "NO_VERSION_AT_SUCCESSOR NO_CHECKSUM": (
        "the successor checks the chain version; nor are checksums compared",
        CALLS,
    ),
    "NO_GAP_REFUSAL": ("a version beyond committed + 1 is refused", CALLS),
    "NO_CHECKSUM": ("predecessor and successor compare checksums", CALLS),
    "NO_MONOTONE_REPLACE": ("a replace never lowers a version that came in the same chain version", CALLS),
    "NO_LOCK_TO_COMPARE": ("resync compares under the chunk lock", CALLS),
    "LOOKUP_AT_ADMISSION": ("the successor is looked up after the disk, not at admission", CALLS),
    "NO_RECHECK_AT_COMMIT": ("a chain change seen before the commit means: forward again", CALLS),
    "LOOKUP_AT_ADMISSION NO_LOCK_TO_COMPARE": ("... both", CALLS),
    "NO_RECHECK_AT_COMMIT NO_LOCK_TO_COMPARE": ("... both", CALLS),
    "COMPARE_BY_VERSION": ("resync compares contents, not only version numbers", PLAIN),
    "CHECK_THEN_PAUSE": ("a read checks its lease in the same step in which it looks up the record", PLAIN),
    "NO_VERSION_FOR_PROMOTION": ("up-to-date counts only for the chain version of its resync run", PLAIN),
    "ENTRIES_APART": ("(none: entries kept apart, persisted and shipped)", PLAIN),
    "ENTRIES_APART NO_ENTRIES_PERSISTED": ("exactly-once entries are persisted with the record", PLAIN),
    "ENTRIES_APART NO_ENTRIES_SHIPPED": ("exactly-once entries travel with resync", PLAIN),
    "ENTRIES_APART ENTRIES_MERGED": ("shipped entries replace the local ones (removed: they are merged)", PLAIN),
    "ANSWER_BEFORE_FINISH": ("an entry of a pending version is not yet a result", CALLS),
    "NO_LASTSRV_COMMIT": ("lastsrv commits its pending (removed: drops it)", PLAIN),
    "ANYONE_RETURNS": ("only a lastsrv target may serve alone", PLAIN),
    "WITNESS": ("(none: after a power cut that destroys one target the chain returns)", [POWER]),
    "NO_WITNESS": ("... offline only while another serving target is known to live", [POWER]),
}

# ---------------------------------------------------------------- chain2.pml
# The configurations of BASE, and some in which a write to the disk fails and strays replace what came early.
PARALLEL_BASE = [
    *BASE[:-1],
    "N=2 WRITES=2 CRASHES=1 LAPSES=1 READS=1 STRAYS=1 FAILS=1",
    "N=2 WRITES=2 CRASHES=1 LAPSES=1 READS=1 STRAYS=1 FAILS=1 DROP_AHEAD",
    "N=3 WRITES=2 CRASHES=1 LAPSES=0 READS=1 TRIES=1 STRAYS=1 FAILS=1 DROP_AHEAD",
    "N=3 WRITES=2 CRASHES=0 LAPSES=0 READS=1 TRIES=1 STRAYS=1 FAILS=1 TIMEOUTS=1",
    "N=3 WRITES=2 CRASHES=1 LAPSES=0 READS=1 TRIES=1 STRAYS=1 FAILS=1 TIMEOUTS=1",
    "N=3 WRITES=1 CRASHES=3 LAPSES=0 READS=1 TRIES=1",
    "N=2 WRITES=2 CRASHES=1 LAPSES=1 READS=1 FAILS=1 DROP_AHEAD ENTRIES_APART",
    "N=2 WRITES=2 CRASHES=2 LAPSES=0 READS=1 TRIES=1 FAILS=1 DROP_AHEAD LOSE_DROPS",
    "N=3 WRITES=2 CRASHES=2 LAPSES=0 READS=0 TRIES=1 FAILS=1 LOSE_DROPS",
    "FENCE N=2 WRITES=1 CRASHES=2 LAPSES=0 READS=0 TRIES=1 FAILS=1 LOSE_DROPS",
    "FENCE N=2 WRITES=2 CRASHES=1 LAPSES=1 READS=0 TRIES=1 FAILS=1 LOSE_DROPS",
    "FENCE N=3 WRITES=1 CRASHES=1 LAPSES=0 READS=0 TRIES=1 STRAYS=1 FAILS=1",
    "MOVE N=3 WRITES=1 CRASHES=2 LAPSES=0 READS=1 TRIES=1",
    "MOVE N=3 WRITES=2 CRASHES=1 LAPSES=0 READS=1 TRIES=1",
    "MOVE N=3 WRITES=1 CRASHES=1 LAPSES=1 READS=1 TRIES=1",
    "MOVE SHRINK N=3 WRITES=1 CRASHES=1 LAPSES=0 READS=1 TRIES=1",
    BASE[-1],
]
P_TWO = "N=2 WRITES=2 CRASHES=1 LAPSES=1 READS=1 FAILS=1"
P_STRAY = "N=2 WRITES=2 CRASHES=1 LAPSES=1 READS=1 TRIES=1 STRAYS=1 FAILS=1"
P_THREE = "N=3 WRITES=1 CRASHES=1 LAPSES=1 READS=1 TRIES=1"
P_THREE_CRASHES = "N=3 WRITES=1 CRASHES=2 LAPSES=0 READS=1 TRIES=1"
P_THREE_FAILS = "N=3 WRITES=2 CRASHES=1 LAPSES=0 READS=1 TRIES=1 FAILS=1"
P_ALL_DIE = "N=2 WRITES=2 CRASHES=2 LAPSES=0 READS=1 TRIES=1 FAILS=1"
P_GIVEN_UP = "N=3 WRITES=2 CRASHES=0 LAPSES=0 READS=1 TRIES=1 STRAYS=1 FAILS=1 TIMEOUTS=1"
P_FENCE = "FENCE N=2 WRITES=1 CRASHES=1 LAPSES=0 READS=0 TRIES=1 STRAYS=1 FAILS=1 LOSE_DROPS"
P_FENCE_ALL_DIE = "FENCE N=2 WRITES=1 CRASHES=2 LAPSES=0 READS=0 TRIES=1 FAILS=1 LOSE_DROPS"
MOVE = "MOVE N=3 WRITES=1 CRASHES=1 LAPSES=0 READS=1 TRIES=1"
PARALLEL = [P_TWO, P_STRAY, P_THREE, P_THREE_CRASHES, P_THREE_FAILS, P_GIVEN_UP]
PARALLEL_ABLATIONS = {
    "NO_PERSIST_BEFORE_FORWARD": ("P3 the token leaves only when the own version is durable", PARALLEL),
    "COMMIT_AHEAD": ("P4 the tail commits only with the token", PARALLEL),
    "FINISH_AHEAD": ("P4 who holds an early version does not drive it on", PARALLEL),
    "NO_IDENTITY": ("P5 the token names the write, not only the version number; another early one gives way", PARALLEL),
    "AHEAD_REPLACES": ("P2 an ahead message replaces only what is early", PARALLEL),
    "NO_MARK": ("P5 with the token the version stops being early, before the token goes on", PARALLEL),
    "FORGET_ON_CHANGE": ("P6 ... and stays so across chain versions", PARALLEL),
    "HEAD_DROPS": (
        "P7 the head finishes what it holds (removed: drops what it takes for early, or restarted with)",
        PARALLEL,
    ),
    "HEAD_DROPS RESTART_AS_EARLY": ("P7, P8: ... both", PARALLEL),
    "RESTART_AS_EARLY": ("P8 after a restart nothing pending counts as early", PARALLEL),
    "NO_LEASE_TO_FINISH": ("P8 ... and it is finished only with a lease", PARALLEL),
    "NO_VERSION_AHEAD": ("P2 an ahead message is of the chain version known", PARALLEL),
    "NO_LEASE_AHEAD": ("P2 ... and taken only with a lease", PARALLEL),
    "NO_VERSION_AHEAD NO_LEASE_AHEAD DROP_AHEAD": (
        "P2 ... both, and early versions nobody wants are dropped",
        PARALLEL,
    ),
    "NO_LASTSRV_COMMIT": ("P7 lastsrv commits what it has (removed: drops it)", [TWO_CRASHES]),
    "NO_GAP_AHEAD": ("P2 ... and only for committed + 1", PARALLEL),
    "NO_UNKNOWN": (
        "P11 an error of the head's own disk leaves the outcome unknown (removed: it says no effect)",
        [P_ALL_DIE, P_THREE_FAILS],
    ),
    "LOSE_DROPS IN_PLACE": (
        "P12 what takes the place of an early version is written to other bytes",
        [P_ALL_DIE, P_THREE_FAILS],
    ),
    "FENCE_KEEPS_EARLY": ("P13 a target that takes the fence drops what is early", [P_FENCE]),
    "FENCE_IGNORED_AHEAD": ("P13 ... and takes nothing older ahead any more", [P_FENCE]),
    "FENCE_DROPS_UNSYNCED": ("P13 ... and the drop is durable before the fence stands", [P_FENCE_ALL_DIE]),
    "DROP_LEASED": ("a target that a move takes away keeps its place until its lease has ended", [MOVE]),
    "ENTRIES_APART ENTRIES_KEPT": ("P9 the exactly-once entry of a version that gives way goes with it", PARALLEL),
}
FRAIL = {"NO_PERSIST_BEFORE_FORWARD", "TAIL_NOT_DURABLE"}

# ---------------------------------------------------------------- a short set, for every run of CI
QUICK_BASE = ["N=2 WRITES=2 CRASHES=1 LAPSES=1 READS=1", "N=3 WRITES=1 CRASHES=1 LAPSES=0 READS=1 TRIES=1"]
QUICK_ABLATIONS = ["NO_ASK_TAIL", "NO_READ_LEASE", "NO_LEASE_WAIT"]
QUICK_PARALLEL = "PARALLEL_PERSIST N=2 WRITES=2 CRASHES=2 LAPSES=0 READS=1 TRIES=1 FAILS=1"
MOVE_SMALL = "MOVE N=3 WRITES=1 CRASHES=0 LAPSES=0 READS=1 TRIES=1"
SHRINK_SMALL = "MOVE SHRINK N=3 WRITES=1 CRASHES=0 LAPSES=0 READS=1 TRIES=1"
QUICK_PARALLEL_ABLATIONS = ["COMMIT_AHEAD", "NO_IDENTITY", "NO_UNKNOWN", "LOSE_DROPS IN_PLACE"]

# ---------------------------------------------------------------- leader.pml
LEADER_BASE = ["T=4 L=4", "T=8 L=2", "T=2 L=4"]
LEADER = {
    "NO_STOP_ACK": "a primary stops acknowledging when its own renewal is old",
    "STOP_ACK_AT_FULL_LENGTH": "... after half the length (removed: after the whole)",
    "NO_WAIT_AFTER_ELECTION": "a new primary waits T before it declares anyone dead",
    "NO_WAIT_AFTER_ELECTION STOP_ACK_AT_FULL_LENGTH": "... both",
    "NO_FENCE": "every transaction of a manager checks the epoch",
    "RENEW_WITHOUT_EPOCH": "... the renewal too",
    "TAKE_OVER_EARLY": "a challenger waits for length + margin",
    "ACK_WHILE_DEMOTING": "no heartbeat is acknowledged once its demotion has been sent",
    "UNKNOWN_OUTCOME_RESUMES": "... and until the outcome is known",
    "ACK_WHATEVER_IT_BELIEVES": "only a target that knows its public state is acknowledged",
    "LEASE_FROM_RECEIPT": "a lease counts from the sending of the heartbeat",
    "INCARNATION_IN_MEMORY": "the incarnation is stored with the chain, not remembered",
}

# ---------------------------------------------------------------- older_store.pml
OLDER_STORE_BASE = ["T=2", "T=4", "T=8"]
OLDER_STORE = {
    "LEASES_AT_ONCE": "a lapsed lease is not renewed before those that would know of a newer store were heard",
    "NO_CHECK_OF_THE_ANSWER": "an answer counts only while what the heartbeat has said of the lease is true",
}


class Run:
    """One build and search of a model with some flags."""

    def __init__(self, model: str, defines: list[str], shortest: bool = False, bitstate: bool = False):
        self.model, self.defines, self.shortest, self.bitstate = HERE / model, defines, shortest, bitstate
        name = "-".join(d.replace("=", "") for d in [model[:-4], *defines]) + ("-short" if shortest else "")
        self.folder = BUILD / name
        self.states = 0
        self.depth: int | None = None
        self.violation: str | None = None
        self.complete = False
        self.seconds = 0.0

    def build(self, optimise: str = "-O2") -> "Run":
        self.folder.mkdir(parents=True, exist_ok=True)
        flags = ["-D" + d for d in self.defines]
        subprocess.run(["spin", *flags, "-a", str(self.model)], cwd=self.folder, check=True, stdout=subprocess.DEVNULL)
        extra = ["-DREACH"] if self.shortest else ["-DBITSTATE"] if self.bitstate else []
        subprocess.run(
            [
                "gcc",
                optimise,
                "-w",
                "-DSAFETY",
                "-DNOREDUCE",
                "-DNOFAIR",
                f"-DMEMLIM={MEMORY_MIB}",
                *extra,
                "-o",
                "pan",
                "pan.c",
            ],
            cwd=self.folder,
            check=True,
        )
        return self

    def search(self, depth: int, limit_s: float, hash_bits: int = 24) -> "Run":
        for trail in self.folder.glob("*.trail"):
            trail.unlink()
        began = time.monotonic()
        try:
            text = subprocess.run(
                ["./pan", f"-m{depth}", f"-w{hash_bits}"],
                cwd=self.folder,
                capture_output=True,
                text=True,
                timeout=limit_s,
            ).stdout
        except subprocess.TimeoutExpired as over:
            text = (over.stdout or b"").decode() + "\ncut off"
        self.seconds = time.monotonic() - began
        (self.folder / "pan.out").write_text(text)
        found = re.search(r"pan:\d+: (.*?) \(at depth (\d+)\)", text)
        self.violation = None
        if found:
            named = re.match(r"assertion violated \(+(\w+)\|\|", found.group(1))
            self.violation = named.group(1) if named else found.group(1)[:60]
        states = re.search(r"(\d[\d.e+]*) states, stored", text)
        partial = re.findall(r"States=\s*([\d.e+]+)", text)
        self.states = int(float(states.group(1))) if states else int(float(partial[-1])) if partial else 0
        reached = re.search(r"depth reached (\d+)", text)
        self.depth = int(reached.group(1)) if reached else None
        self.complete = (
            "cut off" not in text and "reached -DMEMLIM" not in text and "error: max search depth" not in text
        )
        return self

    def story(self) -> str:
        trail = next(self.folder.glob("*.trail"))
        flags = ["-D" + d for d in self.defines]
        text = subprocess.run(
            ["spin", *flags, "-k", trail.name, str(self.model)], cwd=self.folder, capture_output=True, text=True
        ).stdout
        kept = []
        for line in text.splitlines():
            if line.startswith("spin:"):
                break
            if line.strip():
                kept.append("  " + line.strip())
        return "\n".join(kept)


def defines(config: str, flags: str = "") -> list[str]:
    out = config.split() + flags.split()
    return [*out, "FRAIL"] if FRAIL & set(flags.split()) else out


def quick(limit_s: float) -> int:
    """Whether nothing is violated with all rules, and something is without each of a few."""
    jobs = [("chain.pml", config, "") for config in QUICK_BASE]
    jobs += [("chain.pml", QUICK_BASE[0], flag) for flag in QUICK_ABLATIONS]
    jobs += [("chain2.pml", QUICK_PARALLEL + " DROP_AHEAD LOSE_DROPS", "")]
    jobs += [("chain2.pml", QUICK_PARALLEL, flag) for flag in QUICK_PARALLEL_ABLATIONS]
    for config in (MOVE_SMALL, SHRINK_SMALL):
        jobs += [("chain2.pml", f"PARALLEL_PERSIST {config}", flag) for flag in ("", "DROP_LEASED")]
    jobs += [("chain2.pml", f"PARALLEL_PERSIST {P_FENCE}", flag) for flag in ("", "FENCE_KEEPS_EARLY")]
    jobs += [("leader.pml", "T=2 L=4", ""), ("leader.pml", "T=2 L=4", "NO_FENCE")]
    jobs += [("older_store.pml", "T=4", flag) for flag in ("", *OLDER_STORE)]

    def one(job: tuple[str, str, str]) -> bool:
        model, config, flag = job
        run = Run(model, defines(config, flag)).build("-O1").search(2_000_000, limit_s, 22)
        good = bool(run.violation) if flag else run.complete and not run.violation
        verdict = run.violation or ("no violation" if run.complete else "cut off")
        print(
            f"{'ok ' if good else 'BAD'} {model:10} {config:42} {flag:14} {verdict}, {run.states:,} states", flush=True
        )
        return good

    with ThreadPoolExecutor(JOBS) as pool:
        return int(not all(list(pool.map(one, jobs))))


def base(limit_s: float, parallel: bool = False) -> int:
    model, more = ("chain2.pml", "PARALLEL_PERSIST") if parallel else ("chain.pml", "")

    def one(config: str) -> Run:
        hashed = config in BASE_BITSTATE
        run = Run(model, defines(config, more), bitstate=hashed).build()
        run.search(2000, limit_s, BITSTATE_BITS if hashed else 26)
        print(
            f"{config:70} {run.violation or ('ok' if run.complete else 'no violation, cut off'):24} "
            f"{run.states:>12,} states  depth {run.depth}  {run.seconds:6.0f} s",
            flush=True,
        )
        return run

    with ThreadPoolExecutor(1 if parallel else JOBS) as pool:  # up to 7 GiB each
        configs = [*(PARALLEL_BASE if parallel else BASE), *BASE_BITSTATE]
        return int(any(list(pool.map(lambda config: one(config).violation, configs))))


def ablate(names: list[str], limit_s: float, parallel: bool = False) -> int:
    """Looks for any broken invariant first, then for one that clients can see."""
    table, model, more = (
        (PARALLEL_ABLATIONS, "chain2.pml", "PARALLEL_PERSIST ") if parallel else (ABLATIONS, "chain.pml", "")
    )

    def first(flags: str, configs: list[str]) -> tuple[Run | None, str]:
        states = []
        for config in configs:
            run = Run(model, defines(config, more + flags)).build().search(2000, limit_s, 25)
            states.append(f"{run.states:,}{'' if run.complete or run.violation else '+'}")
            if run.violation:
                return run, config
        return None, " ".join(states)

    def one(flags: str) -> None:
        rule, configs = table[flags]
        run, where = first(flags, configs)
        if run is None:
            verdict = f"no violation in {where} states"
        else:
            seen, there = first(flags + " ONLY_CLIENTS", configs[configs.index(where) :])
            verdict = f"{run.violation} [{where}]; clients see: " + (
                f"{seen.violation} [{there}]" if seen else f"nothing in {there} states"
            )
        print(f"{flags}: {rule}\n    {verdict}", flush=True)

    with ThreadPoolExecutor(JOBS) as pool:
        list(pool.map(one, names or table))
    return 0


def leader(limit_s: float) -> int:
    rules = {**LEADER, **OLDER_STORE}
    jobs = [("leader.pml", config, flag) for flag in ("", *LEADER) for config in LEADER_BASE]
    jobs += [("older_store.pml", config, flag) for flag in ("", *OLDER_STORE) for config in OLDER_STORE_BASE]

    def one(job: tuple[str, str, str]) -> bool:
        model, config, flag = job
        run = Run(model, defines(config, flag)).build().search(3_000_000, limit_s, 24)
        print(
            f"{config:10} {flag:28} {run.violation or ('ok' if run.complete else 'no violation, cut off'):26} "
            f"{run.states:>12,} states {run.seconds:6.0f} s  {rules.get(flag, model)}",
            flush=True,
        )
        return bool(flag) or not run.violation

    with ThreadPoolExecutor(JOBS) as pool:
        return int(not all(list(pool.map(one, jobs))))


def trace(flags: str, config: str | None, limit_s: float, parallel: bool = False) -> int:
    known = PARALLEL_ABLATIONS if parallel else ABLATIONS
    model, more, configs = "chain.pml", "", known.get(flags, ("", PLAIN))[1]
    if parallel:
        model, more = "chain2.pml", "PARALLEL_PERSIST "
    elif flags in LEADER:
        model, configs = "leader.pml", LEADER_BASE
    elif flags in OLDER_STORE:
        model, configs = "older_store.pml", OLDER_STORE_BASE
    if config:
        configs = [config]
    for config in configs:
        run = Run(model, defines(config, more + flags), shortest=True).build()
        for depth in [*range(18, 60, 3), 70, 90, 2000]:
            if run.search(depth, limit_s, 22).violation:
                print(f"{flags} [{config}]: {run.violation}, {run.depth} steps\n{run.story()}")
                return 0
            if run.seconds >= limit_s:
                break
    print(f"{flags}: no violation found")
    return 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["quick", "base", "ablate", "parallel", "parallel-ablate", "leader", "trace"])
    parser.add_argument("flags", nargs="*")
    parser.add_argument("--config")
    parser.add_argument("--parallel", action="store_true", help="trace: of chain2.pml")
    parser.add_argument("--limit-s", type=float, default=300)
    args = parser.parse_args()
    if args.what == "quick":
        return quick(args.limit_s)
    if args.what in ("base", "parallel"):
        return base(args.limit_s, args.what == "parallel")
    if args.what in ("ablate", "parallel-ablate"):
        return ablate(args.flags, args.limit_s, args.what == "parallel-ablate")
    if args.what == "leader":
        return leader(args.limit_s)
    return trace(" ".join(args.flags), args.config, args.limit_s, args.parallel)


if __name__ == "__main__":
    sys.exit(main())
