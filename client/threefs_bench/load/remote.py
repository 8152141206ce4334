"""Load from many hosts: a service on each, which runs jobs that a client sends it as JSON over the framed protocol.

    Start  jobs                  the processes are prepared
    Poll   release, stop, leave  how far the run is; in the end the number of its entries
    Fetch  entry                 one entry of the report

The client proves that it has the cluster's key before anything else. A run ends when its client is silent. Another one
begins when the client has fetched all entries, is silent, or leaves them: it may be waiting for other hosts.
"""

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf.wrappers_pb2 import StringValue

from threefs import cluster_key
from threefs.background import BackgroundTasks
from threefs.env.clock import CLOCK
from threefs.env.net import Net, RealNet, parse_address
from threefs.env.random import RANDOM
from threefs.errors import AccessDenied, InvalidArgument, NotFound, Overloaded, ProtocolError, ThreefsError
from threefs.rpc.connection_pool import ConnectionPool
from threefs.rpc.handshake import Identity
from threefs.rpc.limits import Limits
from threefs.rpc.methods import Method
from threefs.rpc.server import Server
from threefs.telemetry.library_logging import LibraryLogger
from threefs_bench.load import fio_report, job_file
from threefs_bench.load.fio_report import Entry
from threefs_bench.load.job import Job, check_on_hosts
from threefs_bench.load.options import MAX_PROCESSES
from threefs_bench.load.runner import STATES, Run, Runner, Snapshot

_LOG = LibraryLogger(__name__)

DEFAULT_PORT = 8765  # fio's
#: A client that has not asked for so long is gone, and its run is stopped.
SILENCE_S = 30.0
_CHECK_S = 1.0
_CALL_S = 10.0
_STOP_S = 5.0
_MAX_JOBS = 64
#: Of jobs of the engine posix: this host looks at each path before a run.
_MAX_FILES = 1 << 16
_SERVICE = "threefs.bench.Load"
START = Method(_SERVICE, "Start", 1, StringValue, StringValue)
POLL = Method(_SERVICE, "Poll", 2, StringValue, StringValue)
FETCH = Method(_SERVICE, "Fetch", 3, StringValue, StringValue)

Fields = dict[str, Any]


def limits() -> Limits:
    """Few clients, and no payload."""
    return Limits(connections=64, calls=16, bodies_bytes=64 << 20)


def encode(fields: Mapping[str, Any]) -> StringValue:
    return StringValue(value=json.dumps(fields))


def decode(message: StringValue) -> Fields:
    """Raises InvalidArgument. Numbers that are not finite are no JSON, and no figure of a run."""
    try:
        found = json.loads(message.value, parse_float=_finite, parse_constant=_finite)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InvalidArgument("the message is not an object in JSON")
    return found


def _finite(text: str) -> float:
    found = float(text)
    if not math.isfinite(found):
        raise ValueError(f"{text} is not finite")
    return found


class LoadServer:
    """Runs the jobs of one client at a time."""

    def __init__(self, key: str, *, key_file: str = "", directory: Path | None = None, net: Net | None = None) -> None:
        """`directory`: where jobs of the engine posix may work; None: nowhere."""
        identity = Identity("", RANDOM.token(16).hex(), key, "threefs-bench")
        self._server = Server(net or RealNet(), identity, limits=limits())
        self._key = key
        self._key_file = key_file
        self._directory = directory
        self._tasks = BackgroundTasks()
        self._run_id = ""
        self._jobs: list[Job] = []
        self._runner: Runner | None = None
        self._snapshot = Snapshot()
        self._failure = ""
        self._outcome: tuple[list[Entry], Run] | None = None
        self._unfetched: set[int] = set()  # entries of the outcome
        self._left = False  # the client wants no figures any more
        self._heard_s = 0.0
        for method, handler in ((START, self._start), (POLL, self._poll), (FETCH, self._fetch)):
            self._server.serve(method, handler)

    async def start(self, host: str, port: int) -> str:
        """Listen; the address. Raises Unavailable, and InvalidSettings for a host that needs a key."""
        cluster_key.check_host(host, self._key)
        address = await self._server.start(host, port)
        self._tasks.start("load server: silence", self._watch())
        return address

    async def stop(self) -> None:
        if self._runner is not None:
            self._runner.stop()
        await self._tasks.stop()
        await self._server.stop(_STOP_S)

    async def _start(self, message: StringValue) -> StringValue:
        fields = decode(message)
        if self._runner is not None or self._is_kept():
            raise Overloaded("a run is in progress here; wait for its end, or stop its client")
        found = fields.get("jobs")
        if not isinstance(found, list) or not 0 < len(found) <= _MAX_JOBS:
            raise InvalidArgument(f"a run has from 1 to {_MAX_JOBS} jobs")
        jobs = [job_file.from_json(one) for one in found]
        host = str(fields.get("host", "")).replace("/", "_").replace(":", "-")
        if (files := sum(job.processes * job.files for job in jobs if job.engine == "posix")) > _MAX_FILES:
            raise InvalidArgument(f"jobs of the engine posix have at most {_MAX_FILES} files on a server, not {files}")
        for job in jobs:
            self._check_allowed(job, host)
        self._jobs, self._outcome, self._failure, self._snapshot = jobs, None, "", Snapshot()
        self._unfetched, self._left = set(), False
        self._run_id, self._heard_s = RANDOM.token(8).hex(), CLOCK.monotonic()
        self._runner = Runner(jobs, self._keep, host=host, key_file=self._key_file, hold=True)
        self._tasks.run("load server: run", self._run(self._runner))
        return encode({"run": self._run_id})

    def _is_kept(self) -> bool:
        """Whether the client of a run that has ended may still fetch figures."""
        return bool(self._unfetched) and not self._left and CLOCK.monotonic() - self._heard_s <= SILENCE_S

    def _check_allowed(self, job: Job, host: str) -> None:
        """Raises AccessDenied for files outside of the directory that is allowed, links included."""
        if job.engine != "posix":
            return
        if self._directory is None:
            raise AccessDenied("this host takes no jobs of the engine posix: start its --server with --allow-directory")
        top = os.path.realpath(self._directory)
        for path in (path for process in range(job.processes) for path in job.paths(process, host)):
            if os.path.commonpath([top, os.path.realpath(path)]) != top:
                raise AccessDenied(f"{path} is not below {top}, where this host lets jobs of the engine posix work")

    def _keep(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    async def _run(self, runner: Runner) -> None:
        try:
            run = await runner.run()
            self._outcome = fio_report.entries(self._jobs, run), run
            self._unfetched = set(range(len(self._outcome[0])))
        except (ThreefsError, OSError) as error:
            self._failure = str(error)
        except Exception as error:  # a client waits for figures or a failure
            self._failure = f"the run has broken off: {error!r}"
            _LOG.exception("a run has broken off")
        finally:
            self._runner = None

    async def _watch(self) -> None:
        while True:
            await CLOCK.sleep(_CHECK_S)
            if self._runner is not None and CLOCK.monotonic() - self._heard_s > SILENCE_S:
                self._runner.stop()  # a second time, if it is still there after so long again: that kills it
                self._heard_s, self._left = CLOCK.monotonic(), True

    async def _poll(self, message: StringValue) -> StringValue:
        fields = self._of_this_run(message)
        self._heard_s = CLOCK.monotonic()
        if self._runner is not None:
            if fields.get("stop"):
                self._runner.stop()
            elif fields.get("release") and self._snapshot.ready:
                self._runner.release()
        self._left = bool(fields.get("leave"))  # one that was silent may come back for its figures
        answer: Fields = {"snapshot": self._snapshot.as_json(), "done": self._runner is None, "failure": self._failure}
        if self._outcome is not None:
            answer |= {"entries": len(self._outcome[0]), "services": self._outcome[1].services}
        return encode(answer)

    async def _fetch(self, message: StringValue) -> StringValue:
        fields = self._of_this_run(message)
        number = fields.get("entry")
        if self._outcome is None or not isinstance(number, int) or not 0 <= number < len(self._outcome[0]):
            raise NotFound(f"there is no entry {number!r} of this run")
        self._heard_s = CLOCK.monotonic()
        self._unfetched.discard(number)
        return encode(self._outcome[0][number].as_json())

    def _of_this_run(self, message: StringValue) -> Fields:
        fields = decode(message)
        if fields.get("run") != self._run_id:
            raise NotFound("this run is over, and another one has begun since")
        return fields


@dataclass(frozen=True, slots=True)
class Answer:
    """What a host answers to a poll."""

    snapshot: Snapshot
    done: bool
    failure: str
    entries: int
    services: list[dict[str, float]]  # CPU seconds of each phase, by role

    @classmethod
    def of(cls, fields: Fields) -> "Answer":
        """Raises InvalidArgument."""
        try:
            services = [
                {str(role): float(cpu_s) for role, cpu_s in phase.items()} for phase in fields.get("services", ())
            ]
            entries, failure = int(fields.get("entries", 0)), str(fields["failure"])
            made = cls(snapshot_of(fields["snapshot"]), bool(fields["done"]), failure, entries, services)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise InvalidArgument(f"this is not how far a run is: {type(error).__name__} {error}") from None
        if not 0 <= made.entries <= MAX_PROCESSES:
            raise InvalidArgument(f"a run has at most {MAX_PROCESSES} entries, not {made.entries}")
        return made


class RemoteRun:
    """A run on several hosts, as `Runner` is one on this host."""

    def __init__(
        self, hosts: Sequence[str], jobs: Sequence[Job], progress: Callable[[Snapshot], None], *, key: str = ""
    ) -> None:
        """Raises InvalidArgument."""
        check_on_hosts(jobs, len(hosts))
        self._addresses = [address_of(host) for host in hosts]
        self._jobs = jobs
        self._progress = progress
        self._peers = ConnectionPool(RealNet(), Identity("", RANDOM.token(16).hex(), key, "threefs-bench"))
        self._runs: dict[str, str] = {}
        self._stops = 0
        self._told = 0

    def stop(self) -> None:
        self._stops += 1

    async def run(self) -> tuple[list[Entry], list[dict[str, float]]]:
        """(entries of all hosts, CPU seconds of services). Raises what a host answers; then all others are stopped."""
        try:
            jobs = [{"given": dict(job.given), "inherited": dict(job.inherited)} for job in self._jobs]
            for address in self._addresses:
                answer = await self._call(address, START, {"jobs": jobs, "host": address})
                self._runs[address] = str(answer.get("run"))
            answers = await self._wait()
            return await self._collect(answers)
        except BaseException:
            for address, run in self._runs.items():
                await self._give_up(address, run)
            raise
        finally:
            await self._peers.close()

    async def _wait(self) -> dict[str, Answer]:
        """The last answers. The load begins when all hosts are prepared."""
        release = False
        while True:
            fields = {"release": release, "stop": self._stops > self._told}
            self._told = self._stops
            answers = {address: await self._poll(address, run, fields) for address, run in self._runs.items()}
            for address, answer in answers.items():
                if answer.failure:
                    raise InvalidArgument(f"{address}: {answer.failure}")
            snapshots = [answer.snapshot for answer in answers.values()]
            self._progress(together(snapshots))
            if all(answer.done for answer in answers.values()):
                return answers
            release = all(snapshot.ready for snapshot in snapshots)
            if any(answer.done for answer in answers.values()) and any(snapshot.ready for snapshot in snapshots):
                self.stop()  # one could not be prepared, and the others would wait for it
            await CLOCK.sleep(_CHECK_S / 4)

    async def _poll(self, address: str, run: str, fields: Fields) -> Answer:
        answer = await self._call(address, POLL, {"run": run, **fields})
        with _said_by(address):
            return Answer.of(answer)

    async def _collect(self, answers: Mapping[str, Answer]) -> tuple[list[Entry], list[dict[str, float]]]:
        entries, services = [], []
        for address, answer in answers.items():
            for number in range(answer.entries):
                fields = await self._call(address, FETCH, {"run": self._runs[address], "entry": number})
                with _said_by(address):
                    entries.append(Entry.from_json(fields, address))
            services += answer.services
        return entries, services

    async def _give_up(self, address: str, run: str) -> None:
        try:
            await self._call(address, POLL, {"run": run, "stop": True, "leave": True})
        except ThreefsError:
            return  # it stops by itself

    async def _call(self, address: str, method: Method[StringValue, StringValue], fields: Fields) -> Fields:
        answer = await self._peers.call(address, method, encode(fields), timeout_s=_CALL_S)
        with _said_by(address):
            return decode(answer)


@contextmanager
def _said_by(address: str) -> Iterator[None]:
    """What cannot be read is the fault of the host, not of the command line."""
    try:
        yield
    except InvalidArgument as error:
        raise ProtocolError(f"{address}: its answer cannot be read: {error.message}") from None


def address_of(host: str) -> str:
    """With the default port, if the host names none. Raises InvalidArgument."""
    bare = host.strip()
    if ":" not in bare or bare.endswith("]"):
        bare = f"{bare}:{DEFAULT_PORT}"
    parse_address(bare)
    return bare


def snapshot_of(fields: Any) -> Snapshot:
    """Raises InvalidArgument."""
    try:
        found = Snapshot(**fields)
        counts = {str(kind): [int(operations), int(moved)] for kind, (operations, moved) in found.counts.items()}
        position = int(found.phase), int(found.phases), STATES[STATES.index(found.state)], float(found.fraction)
        return Snapshot(*position, bool(found.ready), int(found.prepared), counts)
    except (TypeError, ValueError, AttributeError, OverflowError):
        raise InvalidArgument("a host has sent a progress that cannot be read") from None


def together(snapshots: Sequence[Snapshot]) -> Snapshot:
    """Of all hosts: as far as the slowest one."""
    slowest = min(snapshots, key=lambda snapshot: (snapshot.phase, snapshot.fraction))
    counts: dict[str, list[int]] = {}
    for snapshot in snapshots:
        for kind, (operations, transferred) in snapshot.counts.items():
            before = counts.get(kind, [0, 0])
            counts[kind] = [before[0] + operations, before[1] + transferred]
    prepared = sum(snapshot.prepared for snapshot in snapshots)
    return Snapshot(slowest.phase, slowest.phases, slowest.state, slowest.fraction, slowest.ready, prepared, counts)
