"""Reads and writes of the client library, in turns with the limits of the machine for the same work."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import threefs_client

from benchmarks import load_runs
from benchmarks.limits import tools
from benchmarks.measurements import MIB, LeftOutError, Load, Measurements, Sample
from benchmarks.run_plan import Round
from benchmarks.testbed import REPLICAS, Testbed, drop_caches, note_peak, testbed

_4K = 4096
_BATCH, _BATCHES = 256, 4
_DEPTH = 32
_LARGE_DEPTH = 16
_MESSAGE_BYTES = 64
_FILE = "/bench/read"
_WRITES = ("--rw=write", "--bs=1m", "--batch=4", f"--iodepth={_LARGE_DEPTH}")
_BY_CRC = "CRC32C of each piece"
_COMPARED = "every byte of the file compared after the load"
_VERIFIED = "the same job again with verify=crc32c, all blocks read back"

READ_1M = {
    family: Load(
        f"read_1m_{family}", f"1 MiB reads of one client over {family.upper()}, from the page cache", _COMPARED
    )
    for family in ("tcp", "unix")
}
READ_1M_COLD = Load("read_1m_cold", "1 MiB reads of one client, from the disk", _COMPARED)
READ_4K_BATCH = Load("read_4k_batch", f"4 KiB random reads, {_BATCHES} calls of {_BATCH} in flight", _COMPARED, False)
READ_4K = Load("read_4k_depth32", f"4 KiB random reads, {_DEPTH} calls of one in flight", _COMPARED, False)
WRITE_1M = Load("write_1m", f"1 MiB writes, {_LARGE_DEPTH} in flight, durable on {REPLICAS} copies", _VERIFIED)

_LANGUAGES = {"python": "", "c": "_c"}
WORK_1M = {
    (language, family): Load(
        f"work_equal_1m_{family}{end}",
        f"the work of 1 MiB reads in {language.capitalize()} over {family.upper()}",
        _BY_CRC,
    )
    for language, end in _LANGUAGES.items()
    for family in ("tcp", "unix")
}
WORK_4K_BATCH = {
    language: Load(
        f"work_equal_4k_batch{end}",
        f"the work of 4 KiB reads, many in a call, in {language.capitalize()}",
        _BY_CRC,
        False,
    )
    for language, end in _LANGUAGES.items()
}
WORK_4K = {
    language: Load(
        f"work_equal_4k{end}", f"the work of 4 KiB reads, one in a call, in {language.capitalize()}", _BY_CRC, False
    )
    for language, end in _LANGUAGES.items()
}
MESSAGES = Load(
    "small_messages", f"{_MESSAGE_BYTES}-byte messages over loopback TCP, {_DEPTH} in flight, in C", "", False
)
FIO_READ = Load("fio_read_1m", "fio --rw=read --bs=1M --direct=1 --iodepth=8", "")
FIO_WRITE = Load("fio_write_1m", "fio --rw=write --bs=1M --direct=1 --iodepth=16 --fdatasync=16", "")

Step = tuple[Load, Callable[[], Sample]]


def measure(plan: Round, found: Measurements) -> None:
    """One round of all loads; in every second one the limits come last."""
    content = np.random.default_rng(plan.number).bytes(plan.size.file_bytes)
    local = plan.scratch / "limits"
    local.write_bytes(content)
    with testbed(plan.scratch) as bed:
        with threefs_client.connect(bed.address) as fs, fs.open(_FILE, "wb", parents=True) as file:
            file.write(content)
        for pair in _pairs(plan, bed, local):
            for load, step in pair if plan.number % 2 else reversed(pair):
                plan.tell(load.name)
                try:
                    sample = step()
                    found.add(load, sample)
                    if sample.peak_bytes:
                        note_peak(found, "client", sample.peak_bytes)
                except LeftOutError as error:
                    found.left_out[load.name] = str(error)
        _check_reads(bed.address, content)
        _check_writes(bed, plan)
        bed.note_memory(found)
    local.unlink()


def _pairs(plan: Round, bed: Testbed, local: Path) -> list[list[Step]]:
    """Loads, each with the limits that it is compared with."""
    equal = partial(tools.work_equal, file=local, scratch=plan.scratch, seconds=plan.size.seconds)
    small = {"pieces": -(-_BATCH // tools.SERVERS), "length": _4K, "depth": _BATCHES}
    one = {"pieces": 1, "length": _4K, "depth": -(-_DEPTH // tools.SERVERS)}
    pairs: list[list[Step]] = [
        [
            *(
                (WORK_1M[language, family], partial(equal, language, family, pieces=1, length=MIB, depth=4))
                for language in _LANGUAGES
            ),
            (READ_1M[family], partial(_read_1m, plan, bed, family)),
        ]
        for family in ("tcp", "unix")
    ]
    pairs.append(
        [
            *(
                (load, partial(_in_blocks, partial(equal, language, "unix", **small)))
                for language, load in WORK_4K_BATCH.items()
            ),
            (READ_4K_BATCH, partial(_read_4k, plan, bed, _BATCH, _BATCHES)),
        ]
    )
    pairs.append(
        [
            (
                MESSAGES,
                partial(tools.messages, plan.scratch, seconds=plan.size.seconds, length=_MESSAGE_BYTES, depth=_DEPTH),
            ),
            *(
                (load, partial(_in_blocks, partial(equal, language, "unix", **one)))
                for language, load in WORK_4K.items()
            ),
            (READ_4K, partial(_read_4k, plan, bed, 1, _DEPTH)),
        ]
    )
    pairs.append([(FIO_READ, partial(_fio_read, plan, local)), (READ_1M_COLD, partial(_read_cold, plan, bed))])
    pairs.append([(FIO_WRITE, partial(_fio_write, plan)), (WRITE_1M, partial(_write_1m, plan, bed))])
    return pairs


def _in_blocks(load: Callable[[], Sample]) -> Sample:
    return load_runs.operations(load(), _4K)


def _native(bed: Testbed, name: str, plan: Round, *options: str) -> list[str]:
    where = [f"--address={bed.address}", "--ioengine=native", "--directory=/bench", f"--size={plan.size.file_bytes}"]
    return [f"--name={name}", *where, *options]


def _timed(plan: Round) -> list[str]:
    milliseconds = round(plan.size.seconds * 1000)
    return ["--time_based", f"--runtime={milliseconds}ms", f"--ramp_time={milliseconds // 4}ms"]


def _read_1m(plan: Round, bed: Testbed, family: str) -> Sample:
    shape = ["--filename=read", "--rw=read", "--bs=1m", "--batch=8", f"--iodepth={_LARGE_DEPTH}"]
    path = f"--unix_sockets={int(family == 'unix')}"
    return load_runs.threefs_bench(_native(bed, "read", plan, *shape, path, *_timed(plan)))


def _read_4k(plan: Round, bed: Testbed, batch: int, calls: int) -> Sample:
    shape = ["--filename=read", "--rw=randread", "--bs=4k", f"--batch={batch}", f"--iodepth={batch * calls}"]
    return load_runs.operations(load_runs.threefs_bench(_native(bed, "read", plan, *shape, *_timed(plan))), _4K)


def _read_cold(plan: Round, bed: Testbed) -> Sample:
    if not drop_caches():
        raise LeftOutError("the page cache cannot be dropped here: that needs root")
    shape = ["--filename=read", "--rw=read", "--bs=1m", "--batch=8", f"--iodepth={_LARGE_DEPTH}"]
    return load_runs.threefs_bench(_native(bed, "cold", plan, *shape))


def _write_1m(plan: Round, bed: Testbed) -> Sample:
    return load_runs.threefs_bench(_native(bed, "write", plan, *_WRITES))


def _fio(plan: Round, *options: str) -> Sample:
    if not load_runs.has_fio():
        raise LeftOutError("fio is not installed")
    shape = ["--name=limit", "--ioengine=libaio", "--direct=1", "--bs=1M", f"--size={plan.size.file_bytes}"]
    return load_runs.fio([*shape, *options])


def _fio_read(plan: Round, local: Path) -> Sample:
    drop_caches()
    return _fio(plan, "--rw=read", "--iodepth=8", f"--filename={local}")


def _fio_write(plan: Round) -> Sample:
    path = plan.scratch / "written"
    try:
        return _fio(plan, "--rw=write", "--iodepth=16", "--fdatasync=16", f"--filename={path}")
    finally:
        path.unlink(missing_ok=True)


def _check_reads(address: str, content: bytes) -> None:
    """The file again, over both kinds of sockets, in the pieces and batches of the loads."""
    whole = memoryview(content)
    for unix in (True, False):
        with threefs_client.connect(address, unix_sockets=unix) as fs, fs.open(_FILE) as file:
            for length, batch in ((MIB, 8), (_4K, _BATCH)):
                step = length * batch
                for begin in range(0, len(content), step):
                    offsets = range(begin, min(begin + step, len(content)), length)
                    pieces = fs.read_batch([(file, offset, length) for offset in offsets])
                    for offset, piece in zip(offsets, pieces, strict=True):
                        if piece != whole[offset : offset + length]:
                            raise OSError(f"{length} bytes at offset {offset} are not what was written")


def _check_writes(bed: Testbed, plan: Round) -> None:
    load_runs.threefs_bench(_native(bed, "checked", plan, *_WRITES, "--verify=crc32c"))
