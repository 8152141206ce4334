from collections import Counter

import pytest

from benchmarks import profiles
from benchmarks.profiles import PYTHON, Samples

KERNEL = "[kernel.kallsyms]"


@pytest.mark.parametrize(
    ("frames", "what"),
    [
        ([("copy", KERNEL), ("__x64_sys_sendmsg", KERNEL), ("do_syscall_64", KERNEL)], "kernel: sendmsg"),
        ([("copy", KERNEL), ("do_preadv", KERNEL), ("x64_sys_call", KERNEL), ("do_syscall_64", KERNEL)], "do_preadv"),
        ([("clear", KERNEL), ("asm_exc_page_fault", KERNEL), ("f", "/usr/bin/python3.11")], "kernel: page faults"),
        ([("fuse_dev_read", KERNEL), ("do_syscall_64", KERNEL)], "kernel: requests and answers of FUSE"),
        ([("handle_softirqs", KERNEL)], "kernel: interrupts"),
        ([("_PyEval_EvalFrameDefault", "/usr/bin/python3.11"), ("main", "/usr/bin/python3.11")], PYTHON),
        ([("[unknown]", "/x/loop.cpython-311-x86_64-linux-gnu.so")], PYTHON),
        ([("crc32c_extend", "/x/libcrc32c-1.so")], "CRC32C"),
        ([("f", "/x/other.so")], "library: other.so"),
    ],
)
def test_a_sample_of_perf_is_in_a_call_of_the_kernel_or_in_a_library(frames: list[tuple[str, str]], what: str) -> None:
    assert profiles.running_of(frames).endswith(what)


def test_samples_of_perf_are_counted_by_process() -> None:
    lines = [
        " 12 \n",
        "\tffff copy ([kernel.kallsyms])\n",
        "\tffff __x64_sys_read ([kernel.kallsyms])\n",
        "\tffff do_syscall_64 ([kernel.kallsyms])\n",
        "\n",
        " 13 \n",
        "\t1234 [unknown] (/usr/bin/python3.11)\n",
        "\n",
    ]
    assert profiles.read_running(lines * 2) == {12: {"kernel: read": 2}, 13: {PYTHON: 2}}


def test_samples_of_functions_count_for_the_innermost_frame_of_threefs() -> None:
    root = profiles.ROOT
    lines = [
        f"run (/usr/lib/runners.py:5);read ({root}/threefs/env/disk.py:9);wait (/usr/lib/asyncio.py:3) 3",
        "run (/usr/lib/runners.py:5);wait (/usr/lib/asyncio.py:3) 2",
        "run (/usr/lib/runners.py:5);\0 (",
        "",
    ]
    assert profiles.read_functions(lines) == {"`read` of `threefs/env/disk.py`": 3, "`run` of a library": 2}


def test_what_the_interpreter_runs_is_divided_among_functions() -> None:
    found = Samples(Counter({PYTHON: 60, "CRC32C": 20, "RocksDB": 5}), Counter({"f": 3, "g": 1}))
    assert found.parts() == {"RocksDB": 5, "f": 60, "g": 20}
    assert Samples(Counter({PYTHON: 80})).parts() == {PYTHON: 80}


def test_the_table_has_shares_of_all_processes_together() -> None:
    found = {
        "storage": Samples(Counter({PYTHON: 60, "kernel: sendmsg": 15}), Counter({"f": 1})),
        "client": Samples(Counter({PYTHON: 24, "rare": 1}), Counter({"g": 1})),
    }
    lines = profiles.table(profiles.LOADS["read_4k_batch"], profiles.Work(4096e3, 2.0), 1.5, found).splitlines()
    assert lines[0] == "0.5 times 1,000 operations per second, each 3 CPU s; 1.50 cores"
    assert "| 60.0% | storage | f |" in lines and "| 24.0% | client | g |" in lines
    assert "| 1.0% | | the rest, each below 2% |" in lines
    assert "| storage | 75% | 15% | 0% | 0% | 60% |" in lines
