"""The options of a job, with fio's names, and an error for every other name that says which one is nearest."""

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from threefs.errors import InvalidArgument
from threefs_bench.load import values

PATTERNS = ("read", "write", "randread", "randwrite", "rw", "readwrite", "randrw")
ENGINES = ("native", "posix", "meta")
META_OPERATIONS = ("create", "stat", "list", "rename", "remove")
MAX_PROCESSES = 1024
MAX_DEPTH = 65536
MAX_FILES = 1 << 20
_BLOCK_BYTES = 4096
_SHOWN_CHARS = 100  # of a value that is wrong


@dataclass(frozen=True, slots=True)
class Option:
    """`parse` reads its text and raises InvalidArgument. A flag may stand without a value."""

    name: str
    parse: Callable[[str], Any]
    default: Any
    group: str
    help: str
    is_flag: bool = False


def _meta_operations(text: str) -> tuple[values.Share, ...]:
    found = values.shares(text)
    for share in found:
        values.choice(*META_OPERATIONS)(share.what)
    return found


_number = values.number
_WHAT, _WHERE, _HOW, _LIMIT, _REPORT = "What is done", "Where", "How much at once", "How long and how fast", "Report"

OPTIONS = (
    Option("name", values.text, "", _WHAT, "Name of the job. On the command line each --name begins another job."),
    Option(
        "ioengine",
        values.choice(*ENGINES),
        "native",
        _WHAT,
        "native: the client library. posix: system calls on any directory, local or mounted. meta: names of a cluster.",
    ),
    Option("rw", values.choice(*PATTERNS), "read", _WHAT, f"Pattern: {', '.join(PATTERNS)}."),
    Option("rwmixread", _number(0, 100), 50, _WHAT, "Percentage of reads, of rw and randrw."),
    Option(
        "bs",
        values.pair(values.size, _BLOCK_BYTES),
        values.Pair(_BLOCK_BYTES, _BLOCK_BYTES),
        _WHAT,
        "Block size; 4k,64k: of reads, of writes.",
    ),
    Option("bssplit", values.splits, None, _WHAT, "Block sizes with percentages: 4k/60:64k/40."),
    Option(
        "random_distribution",
        values.distribution,
        values.Distribution(),
        _WHAT,
        "random: every block once in each pass. zipf or zipf:THETA: some blocks much more often than others.",
    ),
    Option("randseed", _number(0, (1 << 63) - 1), 0x3F5, _WHAT, "Seed of offsets, mixes and sizes."),
    Option("fsync", _number(0, 1 << 40), 0, _WHAT, "Writes between two fsyncs; 0: none."),
    Option("fdatasync", _number(0, 1 << 40), 0, _WHAT, "Writes between two fdatasyncs; 0: none."),
    Option(
        "verify",
        values.choice("crc32c"),
        "",
        _WHAT,
        "crc32c: blocks carry file, offset, generation and checksum; reads check them, and writes are read back.",
    ),
    Option(
        "metaop",
        _meta_operations,
        values.shares("create"),
        _WHAT,
        f"Operation of the engine meta ({', '.join(META_OPERATIONS)}), or a mix: create/20:stat/60:remove/20.",
    ),
    Option("address", values.text, "", _WHERE, "Cluster of native and meta, threefs://HOST:PORT."),
    Option(
        "unix_sockets",
        values.flag,
        True,
        _WHERE,
        "native and meta: reach services on this host by UNIX sockets; 0: by TCP, as from another host.",
        is_flag=True,
    ),
    Option("directory", values.text, "", _WHERE, "Directory of the files: in the cluster for native and meta."),
    Option("filename", values.text, "", _WHERE, "Files of all processes, a or a:b, in place of NAME.PROCESS.NUMBER."),
    Option("size", values.size, 0, _WHERE, "Bytes that each process transfers, over all of its files."),
    Option("filesize", values.size, 0, _WHERE, "Bytes of each file; by default size is divided among the files."),
    Option("nrfiles", _number(1, MAX_FILES), 1, _WHERE, "Files of each process; names of each process for meta."),
    Option("direct", values.flag, False, _WHERE, "posix: O_DIRECT, past the page cache.", is_flag=True),
    Option("invalidate", values.flag, True, _WHERE, "posix: drop the page cache of the files first.", is_flag=True),
    Option("unlink", values.flag, False, _WHERE, "Remove the files at the end.", is_flag=True),
    Option("numjobs", _number(1, MAX_PROCESSES), 1, _HOW, "Processes, each with files of its own."),
    Option(
        "iodepth",
        _number(1, MAX_DEPTH),
        0,
        _HOW,
        "Blocks in flight of each process [default: batch]; for posix threads.",
    ),
    Option("batch", _number(1, MAX_DEPTH), 1, _HOW, "native and meta: blocks or names in one call of the client."),
    Option("stonewall", values.flag, False, _HOW, "Begin when all jobs before this one have ended.", is_flag=True),
    Option("runtime", values.seconds, 0.0, _LIMIT, "End after this time at the latest: 30, 500ms, 5m."),
    Option("time_based", values.flag, False, _LIMIT, "Go on until runtime is over, in further passes.", is_flag=True),
    Option("ramp_time", values.seconds, 0.0, _LIMIT, "Load that is not measured, before the measurement."),
    Option(
        "rate",
        values.pair(values.size, 0),
        values.Pair(0, 0),
        _LIMIT,
        "Most bytes/s of each process: 10m, or 10m,5m for reads and writes, or ,5m for writes alone.",
    ),
    Option(
        "rate_iops",
        values.pair(_number(0, 1 << 40), 0),
        values.Pair(0, 0),
        _LIMIT,
        "Most operations/s of each process.",
    ),
    Option("group_reporting", values.flag, False, _REPORT, "One report for all processes of a group.", is_flag=True),
    Option("new_group", values.flag, False, _REPORT, "Begin another group.", is_flag=True),
)
BY_NAME = {option.name: option for option in OPTIONS}
_ALIASES = {"readwrite": "rw", "blocksize": "bs"}


def canonical(name: str, others: Iterable[str] = ()) -> str:
    """The name of an option as OPTIONS or `others` have it. Raises InvalidArgument, which names the nearest one."""
    wanted = name.replace("-", "_")
    wanted = _ALIASES.get(wanted, wanted)
    known = {each.replace("-", "_"): each for each in (*BY_NAME, *_ALIASES, *others)}
    if wanted in known:
        return known[wanted]
    near = difflib.get_close_matches(wanted, known, n=1, cutoff=0.0)
    raise InvalidArgument(f"there is no option {name!r}; the nearest one is {known[near[0]]!r} (--help shows all)")


def parse(given: Mapping[str, str]) -> dict[str, Any]:
    """Values of all options, by canonical name. Raises InvalidArgument, which names the option."""
    found = {option.name: option.default for option in OPTIONS}
    for name, text in given.items():
        try:
            found[name] = BY_NAME[name].parse(text)
        except InvalidArgument as error:
            raise InvalidArgument(f"{name}={text[:_SHOWN_CHARS]}: {error.message}") from None
    return found
