"""Programs that leave files open: they end, and what they have written is stored."""

import os
import subprocess
import sys
import time

import pytest
from threefs_client import FileSystem

from tests.harness.cluster import LocalCluster
from tests.harness.processes import environment

CONTENT = b"important"
MOST_S = 5.0

OPEN = "f = fs.open(path, 'wb'); f.write(b'important')"
PROGRAMS = {
    "plain": OPEN,
    "text": "f = fs.open(path, 'w'); f.write('important')",
    "reader": "fs.write_file(path, b'important'); f = fs.open(path); f.read(3)",
    "raises": f"{OPEN}; raise SystemExit(0) from ValueError('x')",
    "closed connection": f"{OPEN}; fs.close()",
    "as a user": f"fs.chmod('/', 0o777); top = fs; fs = top.acting_as(7, 7); {OPEN}; top.close()",
    "cycle": f"{OPEN}; l = [f]; l.append(l); del f, l",
    "thread": f"""
import threading
def work():
    global f
    {OPEN}
threading.Thread(target=work).start()""",
    "inside a loop": f"""
import asyncio
async def main():
    global f
    {OPEN}
asyncio.run(main())""",
    "asyncio": """
import asyncio, threefs
async def main():
    fs = await threefs.connect_async(url)
    f = await fs.open(path, 'wb')
    await f.write(b'important')
    kept.append(f)
kept = []
asyncio.run(main())""",
    "asyncio with only the file left": """
import asyncio, gc, threefs
async def main():
    f = await (await threefs.connect_async(url)).open(path, 'wb')
    gc.collect()
    await asyncio.sleep(0.1)
    await f.write(b'import')
    await f.write(b'ant')
    asyncio.current_task().f = f
    raise SystemExit(0)
asyncio.run(main())""",
    "asyncio connection closed": """
import asyncio, threefs
async def main():
    async with await threefs.connect_async(url) as fs:
        f = await fs.open(path, 'wb')
        await f.write(b'important')
asyncio.run(main())""",
    "forked child": f"""
import os
g = fs.open(path + '-parent', 'wb'); g.write(b'parent')
if os.fork():
    os.wait()
else:
    {OPEN}""",
    "child of multiprocessing": f"""
import multiprocessing
def work():
    global f
    {OPEN}
child = multiprocessing.get_context('fork').Process(target=work)
child.start(); child.join()""",
    "parent of a forked child": f"""
import os
{OPEN}
if not os.fork():
    os._exit(0)
os.wait()""",
}


def run(cluster: LocalCluster, path: str, program: str) -> subprocess.CompletedProcess[str]:
    head = f"import threefs\nurl, path = {cluster.address!r}, {path!r}\nfs = threefs.connect(url)\n"
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", head + program], capture_output=True, text=True, env=environment(), timeout=30
    )
    assert time.monotonic() - began < MOST_S + (os.getloadavg()[0] > 2) * 15, done.stderr
    return done


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_file_that_is_left_open_is_stored(cluster: LocalCluster, fs: FileSystem, name: str) -> None:
    path = f"/left-open-{name.replace(' ', '-')}"
    done = run(cluster, path, PROGRAMS[name])
    assert (done.returncode, done.stderr) == (0, "")
    assert fs.read_file(path) == CONTENT
    assert name != "forked child" or fs.read_file(path + "-parent") == b"parent"


def test_after_an_uncaught_exception_too(cluster: LocalCluster, fs: FileSystem) -> None:
    done = run(cluster, "/left-open", f"{OPEN}\nraise ValueError('the programs own')")
    assert done.returncode == 1 and done.stderr.count("Traceback") == 1 and "the programs own" in done.stderr
    assert fs.read_file("/left-open") == CONTENT


def test_a_dataset_that_is_left_open_keeps_no_program(cluster: LocalCluster) -> None:
    program = """
from threefs_data import Dataset, pack
pack(fs, [b'important'], path)
data = Dataset(fs, path)
print(bytes(data[0]))"""
    done = run(cluster, "/left-open-dataset", program)
    assert (done.returncode, done.stdout, done.stderr) == (0, "b'important'\n", "")


DAEMONS = {
    "calls": "while True: fs.read_file(path)",
    "reads": "f = fs.open(path)\n    while True: f.seek(0); f.read()",
    "writes": "f = fs.open(path + '-other', 'wb')\n    while True: f.write(b'x' * 100_000)",
    "small writes": "f = fs.open(path + '-other', 'wb')\n    while True: f.write(b'x')",
    "one long call": "f = fs.open(path, 'r+b'); f.lock(); g = fs.open(path, 'r+b'); g.lock()",
}


@pytest.mark.parametrize("name", DAEMONS)
def test_a_daemon_thread_ends_without_a_word(cluster: LocalCluster, name: str) -> None:
    """It printed a traceback, as its call was cancelled or its file closed."""
    program = f"""
import threading, time
fs.write_file(path, b'important' * 100)
def work():
    {DAEMONS[name]}
threading.Thread(target=work, daemon=True).start()
time.sleep(0.5)"""
    done = run(cluster, f"/daemon-{name.replace(' ', '-')}", program)
    assert (done.returncode, done.stderr) == (0, "")


def test_writes_that_cannot_be_stored_are_errors(cluster: LocalCluster) -> None:
    """Nobody else can tell the user: the program has not asked."""
    program = f"{OPEN}; f._file.handle._lease = -1"
    done = run(cluster, "/left-open-lost", program)
    assert "left open could not be closed" in done.stderr and "/left-open-lost" in done.stderr
