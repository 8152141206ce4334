"""A job: its options, checked against each other, and what follows from them."""

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations
from typing import Any

from threefs.errors import InvalidArgument
from threefs_bench.load import options, values
from threefs_bench.load.values import Share

#: Buffers of the blocks in flight, of one process.
MAX_BUFFER_BYTES = 1 << 30
#: One number is kept per block that is verified: 256 MiB.
MAX_VERIFIED_BLOCKS = 1 << 26
MIN_VERIFIED_BYTES = 512
#: The order of random blocks is a permutation of numbers of 48 bits (`threefs_data.permutation`).
MAX_RANDOM_BLOCKS = (1 << 48) - 1
_SECTOR_BYTES = 512
_BETWEEN_NAMES = re.compile(r"(?<!\\):")
#: The path of a file that has no name of its own ends with the numbers of its process and of the file.
_NUMBERED = re.compile(r"(.*)\.(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})", re.DOTALL)


@dataclass(frozen=True)
class Job:
    """One section of a job file. `given` has the options as they were written, `inherited` those of [global]."""

    given: Mapping[str, str]
    inherited: Mapping[str, str]

    @cached_property
    def values(self) -> dict[str, Any]:
        return options.parse({**self.inherited, **self.given})

    def __getitem__(self, option: str) -> Any:
        return self.values[option]

    @property
    def name(self) -> str:
        return str(self["name"])

    @property
    def engine(self) -> str:
        return str(self["ioengine"])

    # ---- the pattern ----

    @property
    def is_random(self) -> bool:
        return str(self["rw"]).startswith("rand")

    @property
    def reads(self) -> bool:
        return self["rw"] not in ("write", "randwrite")

    @property
    def writes(self) -> bool:
        return self["rw"] not in ("read", "randread")

    @property
    def read_percent(self) -> int:
        if self.reads and self.writes:
            return int(self["rwmixread"])
        return 100 if self.reads else 0

    @cached_property
    def block_splits(self) -> tuple[tuple[Share, ...], tuple[Share, ...]]:
        """Block sizes of reads and of writes, with their percentages."""
        if self["bssplit"] is not None:
            split: tuple[tuple[Share, ...], tuple[Share, ...]] = self["bssplit"]
            return split
        return (Share(str(self["bs"].read), 100.0),), (Share(str(self["bs"].write), 100.0),)

    @cached_property
    def block_sizes(self) -> tuple[int, ...]:
        """All that this job uses, the smallest first."""
        reads, writes = self.block_splits
        used = (*(reads if self.reads else ()), *(writes if self.writes else ()))
        return tuple(sorted({values.size(share.what) for share in used if share.percent}))

    # ---- the amount ----

    @property
    def batch(self) -> int:
        return int(self["batch"])

    @property
    def depth(self) -> int:
        """Blocks in flight."""
        return int(self["iodepth"]) or self.batch

    @property
    def slots(self) -> int:
        """Calls in flight."""
        return self.depth // self.batch

    @property
    def processes(self) -> int:
        return int(self["numjobs"])

    @cached_property
    def file_names(self) -> tuple[str, ...]:
        """Those of `filename`, which have a colon between them as in fio; `\\:` is a colon in a name."""
        given = "" if self.engine == "meta" else str(self["filename"])
        return tuple(name.replace("\\:", ":") for name in _BETWEEN_NAMES.split(given)) if given else ()

    @property
    def files(self) -> int:
        return len(self.file_names) or int(self["nrfiles"])

    @property
    def file_bytes(self) -> int:
        return int(self["filesize"]) or int(self["size"]) // self.files

    @property
    def pass_bytes(self) -> int:
        """Bytes that one pass over the files transfers."""
        there = self.file_bytes * self.files
        total = int(self["size"]) or there
        if len(self.block_sizes) > 1:
            return min(total, there)
        block = self.block_sizes[0]
        return min(total // block, self.file_bytes // block * self.files) * block

    @property
    def _directory(self) -> str:
        return str(self["directory"] or ("." if self.engine == "posix" else "/")).rstrip("/")

    def paths(self, process: int, host: str = "") -> list[str]:
        """The files of one process; `host` keeps those of several hosts apart."""
        directory = self._directory
        if self.file_names and self["directory"]:
            return [f"{directory}/{name}" for name in self.file_names]
        if self.file_names:  # a name with a slash in front needs no directory
            return [posixpath.join(directory or "/", name) for name in self.file_names]
        return [f"{directory}/{self.stem(process, host)}.{number}" for number in range(self.files)]

    @cached_property
    def first_paths(self) -> frozenset[str]:
        """The files with names, else the first one of the first process; normalized."""
        paths = self.paths(0) if self.file_names else [f"{self._directory}/{self.stem(0)}.0"]
        return frozenset(map(_normalized, paths))

    def has_file(self, path: str) -> bool:
        """Whether this is the normalized path of a file of one of its processes. They may have a billion files."""
        numbered = _NUMBERED.fullmatch(path)
        if self.file_names or numbered is None:
            return path in self.first_paths
        stem, process, number = numbered.groups()
        return f"{stem}.0.0" in self.first_paths and int(process) < self.processes and int(number) < self.files

    def stem(self, process: int, host: str = "") -> str:
        """Of the names of one process."""
        name = self.name.replace("/", "_")
        return f"{host}.{name}.{process}" if host else f"{name}.{process}"


def checked(job: Job) -> Job:
    """Raises InvalidArgument, which names the job and the options that do not fit."""
    try:
        if not job.name:
            raise InvalidArgument("it has no name: write --name=NAME before its options")
        _check_common(job)
        if job.engine == "meta":
            _check_meta(job)
        else:
            _check_data(job)
        if job["verify"]:
            _check_verify(job)
    except InvalidArgument as error:
        raise InvalidArgument(f"job {job.name!r}: {error.message}") from None
    return job


def _check_common(job: Job) -> None:
    if job["time_based"] and not job["runtime"]:
        raise InvalidArgument("time_based needs a runtime: --runtime=30 goes on for 30 seconds")
    if job.depth % job.batch:
        raise InvalidArgument(
            f"iodepth={job.depth} is not a multiple of batch={job.batch}, and each call has batch blocks of the "
            "iodepth that are in flight"
        )
    if job["batch"] > 1 and job.engine == "posix":
        raise InvalidArgument(f"batch={job.batch} is for the engines native and meta; posix has one block in a call")
    if job["address"] and job.engine == "posix":
        raise InvalidArgument("address is for the engines native and meta; posix takes any directory=")


def _check_data(job: Job) -> None:
    if not job["size"] and not job["filesize"]:
        raise InvalidArgument("size or filesize is missing: --size=1g says how much each process transfers")
    smallest, largest = job.block_sizes[0], job.block_sizes[-1]
    if not smallest:
        raise InvalidArgument("a block size of 0 transfers nothing")
    if job.file_bytes < largest:
        raise InvalidArgument(
            f"each of {job.files} files has {job.file_bytes} bytes, which is less than a block of {largest}: raise "
            "size or filesize, or lower nrfiles or bs"
        )
    if job.is_random and (blocks := job.file_bytes // smallest * job.files) > MAX_RANDOM_BLOCKS:
        raise InvalidArgument(f"a random order has at most {MAX_RANDOM_BLOCKS} blocks, not {blocks}: raise bs")
    if job["filename"]:
        _check_file_names(job)
    if job["bssplit"] is not None and ("bs" in job.given or "bs" in job.inherited):
        raise InvalidArgument("bs and bssplit both give block sizes; give one of them")
    if job["direct"] and job.engine == "posix" and any(size % _SECTOR_BYTES for size in job.block_sizes):
        raise InvalidArgument(f"direct=1 needs block sizes that are multiples of {_SECTOR_BYTES} bytes")
    if job.depth * largest > MAX_BUFFER_BYTES:
        raise InvalidArgument(
            f"iodepth={job.depth} blocks of {largest} bytes need more than the {MAX_BUFFER_BYTES >> 20} MiB of buffers "
            "that a process may have: lower iodepth or bs, and raise numjobs"
        )


def _check_file_names(job: Job) -> None:
    given, names = job["filename"], job.file_names
    if job["nrfiles"] not in (1, len(names)):
        said = "one file" if len(names) == 1 else f"{len(names)} files"
        raise InvalidArgument(f"filename={given} names {said}, and nrfiles={job['nrfiles']}")
    if "" in names or len(job.first_paths) < len(names):
        raise InvalidArgument(f"filename={given} has a name that is empty, or two of one file, between its colons")


def _check_meta(job: Job) -> None:
    for name in ("size", "filesize", "filename", "bssplit", "fsync", "fdatasync", "verify", "direct", "rate"):
        if name in job.given:
            raise InvalidArgument(f"{name} is about the content of files, and the engine meta has only names (nrfiles)")
    if job.files < job.slots:
        raise InvalidArgument(
            f"nrfiles={job.files} names cannot be divided among {job.slots} calls in flight: raise nrfiles"
        )


def _check_verify(job: Job) -> None:
    if len(job.block_sizes) > 1:
        raise InvalidArgument("verify needs one block size: each block carries a checksum of its own")
    if job.block_sizes[0] < MIN_VERIFIED_BYTES or job.block_sizes[0] % 8:
        raise InvalidArgument(f"verify needs blocks of at least {MIN_VERIFIED_BYTES} bytes, in multiples of 8")
    if job.processes > 1 and _writes_one_verified_file(job):
        raise InvalidArgument("verify cannot judge a file that several processes write: leave filename out")
    blocks = job.file_bytes // job.block_sizes[0] * job.files
    if blocks > MAX_VERIFIED_BLOCKS:
        raise InvalidArgument(f"verify takes at most {MAX_VERIFIED_BLOCKS} blocks for each process, not {blocks}")
    if job.depth * 2 > blocks:
        raise InvalidArgument(
            f"verify has one operation on a block at a time, so iodepth={job.depth} is too much for {blocks} blocks: "
            "lower iodepth, or raise size"
        )


def _writes_one_verified_file(job: Job) -> bool:
    """Whether all processes write to one file. A checksum of a block does not tell who of them wrote it last."""
    return bool(job["verify"] and job.writes and job["filename"])


def check_on_hosts(jobs: Sequence[Job], hosts: int) -> None:
    """Raises InvalidArgument, if several hosts are to run a job that only one can run."""
    for job in jobs:
        if hosts > 1 and _writes_one_verified_file(job):
            raise InvalidArgument(
                f"job {job.name!r}: verify cannot judge a file that several hosts write: leave filename out"
            )


def check_together(jobs: Sequence[Job]) -> None:
    """Raises InvalidArgument, if a job verifies a file that another one writes at the same time."""
    for phase in phases(jobs):
        together = [jobs[index] for index in phase if jobs[index].engine != "meta"]
        if len(together) < 2 or not any(job["verify"] for job in together):
            continue
        for job, other in permutations(together, 2):
            if job["verify"] and other.writes and (path := _common_file(job, other)):
                raise InvalidArgument(
                    f"job {job.name!r}: verify cannot judge {path}, which job {other.name!r} writes at the same time: "
                    "leave filename out, name the jobs differently, or part them by a stonewall"
                )


def _common_file(job: Job, other: Job) -> str | None:
    """A file that both have. Where the files of both are numbered, the first ones tell."""
    if _cluster(job) != _cluster(other):
        return None
    named, either = (job, other) if job.file_names else (other, job)
    return next((path for path in named.first_paths if either.has_file(path)), None)


def _cluster(job: Job) -> str:
    """Where the files are; those of this host are in no cluster."""
    return "" if job.engine == "posix" else str(job["address"])


def _normalized(path: str) -> str:
    """POSIX leaves open what two slashes at the begin mean, and `normpath` keeps them."""
    return posixpath.normpath(f"/{path.lstrip('/')}" if path.startswith("/") else path)


def phases(jobs: Sequence[Job]) -> list[list[int]]:
    """Indexes of the jobs that run at the same time: a stonewall begins the next phase."""
    found: list[list[int]] = []
    for index, job in enumerate(jobs):
        if not found or job["stonewall"]:
            found.append([])
        found[-1].append(index)
    return found


def group_ids(jobs: Sequence[Job]) -> list[int]:
    """The group of each job: as in fio a stonewall and new_group begin another one."""
    found: list[int] = []
    for index, job in enumerate(jobs):
        begins = index > 0 and (job["stonewall"] or job["new_group"])
        found.append((found[-1] if found else 0) + begins)
    return found
