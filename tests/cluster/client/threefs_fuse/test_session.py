"""The conversation with the kernel: the real one, and one played by the test, which says things that no kernel says."""

import asyncio
import errno
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import uvloop
from threefs_fuse import mounting, replies
from threefs_fuse.init_handshake import SessionOptions
from threefs_fuse.mounting import MountRequest
from threefs_fuse.protocol import HEAD_BYTES, MAX_PAYLOAD_BYTES, Feature, Op
from threefs_fuse.requests import Caller
from threefs_fuse.session import Session

from tests.harness.fuse_files import FuseFiles
from tests.harness.mounts import need_mounts

WISHES = SessionOptions(Feature.ASYNC_READ | Feature.BIG_WRITES | Feature.DO_READDIRPLUS | Feature.SETXATTR_EXT)


def mounted(point: Path, scene: Callable[[Path, FuseFiles, Session], Awaitable[None]]) -> None:
    """Programs of the scene work in threads, or they would wait for themselves."""
    need_mounts()

    async def run() -> None:
        files = FuseFiles()
        session = Session(mounting.mount(MountRequest(str(point), "memory", "memory")), files, WISHES)
        session.start()
        try:
            await files.is_ready.wait()
            await scene(point, files, session)
        finally:
            if not session.ended.done():
                mounting.unmount(str(point))
            await session.close()

    uvloop.run(run())


def test_programs_work_on_it(tmp_path: Path) -> None:
    data = os.urandom(3_000_001)

    def work(root: Path) -> None:
        (root / "a").write_bytes(data)
        (root / "b").write_bytes(b"x")
        assert sorted(os.listdir(root)) == ["a", "b"]
        assert (root / "a").read_bytes() == data and (root / "a").stat().st_size == len(data)
        os.truncate(root / "a", 5)
        assert (root / "a").read_bytes() == data[:5]
        os.unlink(root / "b")
        assert os.listdir(root) == ["a"] and not (root / "b").exists()
        os.setxattr(root / "a", "user.x", b"value")
        assert os.getxattr(root / "a", "user.x") == b"value" and os.listxattr(root / "a") == ["user.x"]
        assert os.statvfs(root).f_bfree == 50
        for name, number in (("refused", errno.EDQUOT), ("broken", errno.EIO)):
            with pytest.raises(OSError) as caught:
                (root / name).touch()
            assert caught.value.errno == number
        with pytest.raises(OSError) as caught:
            os.mkdir(root / "d")
        assert caught.value.errno == errno.ENOSYS

    async def scene(root: Path, files: FuseFiles, session: Session) -> None:
        await asyncio.to_thread(work, root)
        assert {(caller.uid, caller.gid) for caller in files.callers} == {(os.getuid(), os.getgid())}

    mounted(tmp_path, scene)


def test_many_programs_at_once(tmp_path: Path) -> None:
    async def scene(root: Path, files: FuseFiles, session: Session) -> None:
        def one(number: int) -> None:
            (root / f"{number}").write_bytes(b"%d" % number * 300_000)
            assert (root / f"{number}").read_bytes() == b"%d" % number * 300_000

        await asyncio.gather(*(asyncio.to_thread(one, number) for number in range(20)))

    mounted(tmp_path, scene)


def test_a_signal_stops_what_waits(tmp_path: Path) -> None:
    async def scene(root: Path, files: FuseFiles, session: Session) -> None:
        await asyncio.to_thread((root / "slow").write_bytes, b"x")
        program = await asyncio.to_thread(
            subprocess.Popen, [sys.executable, "-c", f"open({str(root / 'slow')!r}, 'rb').read()"]
        )
        while not session.waiting(Op.OPEN):
            await asyncio.sleep(0.01)
        program.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(program.wait) == -signal.SIGTERM
        assert files.stopped == 1

    mounted(tmp_path, scene)


def test_a_signal_with_a_handler_stops_nothing(tmp_path: Path) -> None:
    async def scene(root: Path, files: FuseFiles, session: Session) -> None:
        await asyncio.to_thread((root / "slow").write_bytes, b"x")
        code = "import signal; signal.signal(signal.SIGUSR1, lambda *_: None); "
        program = await asyncio.to_thread(
            subprocess.Popen, [sys.executable, "-c", f"{code}open({str(root / 'slow')!r}, 'rb')"]
        )
        while not session.waiting(Op.OPEN):
            await asyncio.sleep(0.01)
        program.send_signal(signal.SIGUSR1)
        await asyncio.sleep(0.3)
        assert files.stopped == 0 and session.waiting(Op.OPEN)
        program.kill()
        assert await asyncio.to_thread(program.wait) == -signal.SIGKILL
        assert files.stopped == 1

    mounted(tmp_path, scene)


def test_an_unmount_ends_it(tmp_path: Path) -> None:
    async def scene(root: Path, files: FuseFiles, session: Session) -> None:
        await asyncio.to_thread((root / "a").write_bytes, b"x")
        await asyncio.to_thread(subprocess.run, ["umount", str(root)], check=True)
        await session.ended

    mounted(tmp_path, scene)


def test_the_kernel_takes_notices(tmp_path: Path) -> None:
    async def scene(root: Path, files: FuseFiles, session: Session) -> None:
        await asyncio.to_thread((root / "a").write_bytes, b"one")
        inode = files.names[b"a"]
        files.remembered_s = 60.0
        assert (await asyncio.to_thread(os.stat, root / "a")).st_size == 3
        files.content[inode] += b" and more"
        assert (await asyncio.to_thread(os.stat, root / "a")).st_size == 3, "it remembers"
        session.notify(replies.attributes_changed(inode))
        assert (await asyncio.to_thread(os.stat, root / "a")).st_size == 12

    mounted(tmp_path, scene)


def test_pages_are_given_up_when_those_that_are_read_are_there(tmp_path: Path) -> None:
    async def scene(root: Path, files: FuseFiles, session: Session) -> None:
        await asyncio.to_thread((root / "a").write_bytes, b"old")
        inode = files.names[b"a"]
        files.remembered_s = 60.0
        fd = await asyncio.to_thread(os.open, root / "a", os.O_RDONLY)
        assert await asyncio.to_thread(os.pread, fd, 10, 0) == b"old"
        files.content[inode][:] = b"new"
        assert await asyncio.to_thread(os.pread, fd, 10, 0) == b"old", "it has the page"
        await session.notify_and_wait(replies.content_changed(inode))
        files.may_read.clear()
        files.reading.clear()
        reader = asyncio.create_task(asyncio.to_thread(os.pread, fd, 10, 0))
        await files.reading.wait()
        telling = asyncio.create_task(session.notify_and_wait(replies.content_changed(inode)))
        assert not (await asyncio.wait([telling], timeout=0.1))[0], "the kernel waits for the page"
        draining = asyncio.create_task(session.drain())
        await asyncio.sleep(0)
        with pytest.raises(OSError, match="not connected"):
            await session.notify_and_wait(replies.content_changed(inode))
        files.may_read.set()
        await telling
        await draining
        # The page may be given up before the reader has copied it. Then the kernel asks again, and until the session is
        # closed nobody answers.
        for read in (await asyncio.wait([reader], timeout=0.5))[0]:
            assert read.result() == b"new"
        reader.add_done_callback(lambda read: read.exception())
        asyncio.get_running_loop().run_in_executor(None, os.close, fd)  # ends with the session: nobody answers

    mounted(tmp_path, scene)


# ---- a kernel that the test plays ----


class Kernel:
    def __init__(self, there: socket.socket) -> None:
        self.socket = there

    async def say(self, code: int, body: bytes, *, number: int = 1, inode: int = 1, length: int = 0) -> None:
        head = struct.pack("=IIQQIIIHH", length or 40 + len(body), code, number, inode, 0, 0, 0, 0, 0)
        await asyncio.get_running_loop().sock_sendall(self.socket, head + body)

    async def hear(self) -> tuple[int, int, bytes]:
        """(number, error, body) of the next answer."""
        answer = await asyncio.get_running_loop().sock_recv(self.socket, HEAD_BYTES + MAX_PAYLOAD_BYTES)
        length, error, number = struct.unpack_from("=IiQ", answer)
        assert length == len(answer)
        return number, -error, answer[16:]


def played(
    scene: Callable[[Kernel, FuseFiles, Session], Awaitable[None]], make: Callable[[], FuseFiles] = FuseFiles
) -> None:
    async def run() -> None:
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        here.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
        there.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
        there.setblocking(False)
        files = make()
        session = Session(here.detach(), files, WISHES)
        session.start()
        kernel = Kernel(there)
        await kernel.say(Op.INIT, struct.pack("=IIIIII40x", 7, 38, 0, 0xFFFFFFFF, 0, 0))
        assert (await kernel.hear())[1] == 0
        await scene(kernel, files, session)
        await session.close()
        there.close()

    asyncio.run(run())


def test_nonsense_is_answered_and_ends_nothing() -> None:
    async def scene(kernel: Kernel, files: FuseFiles, session: Session) -> None:
        await kernel.say(9999, b"", number=2)
        assert await kernel.hear() == (2, errno.ENOSYS, b"")
        await kernel.say(Op.LOOKUP, b"no end", number=3)
        assert await kernel.hear() == (3, errno.EIO, b"")
        await kernel.say(Op.SETATTR, b"short", number=4)
        assert await kernel.hear() == (4, errno.EIO, b"")
        await kernel.say(Op.LOOKUP, b"a\0", number=5, length=999)
        assert await kernel.hear() == (5, errno.EIO, b"")
        await kernel.say(Op.INTERRUPT, b"", number=6)  # notes get no answer, whatever they say
        await kernel.say(Op.BATCH_FORGET, b"\xff" * 16, number=7)
        await kernel.say(Op.INIT, struct.pack("=IIIIII40x", 7, 38, 0, 0, 0, 0), number=8)
        assert await kernel.hear() == (8, errno.ENOSYS, b"")
        await kernel.say(Op.LOOKUP, b"a\0", number=9)
        number, error, body = await kernel.hear()
        assert (number, error, len(body)) == (9, 0, 128)
        assert not session.ended.done()

    played(scene)


def test_forgets_reach_the_file_system() -> None:
    async def scene(kernel: Kernel, files: FuseFiles, session: Session) -> None:
        await kernel.say(Op.FORGET, struct.pack("=Q", 3), inode=7)
        await kernel.say(Op.BATCH_FORGET, struct.pack("=IIQQ", 1, 0, 8, 1))
        await kernel.say(Op.DESTROY, b"", number=5)
        assert (await kernel.hear())[0] == 5
        assert files.forgotten == [(7, 3), (8, 1)]

    played(scene)


def test_an_interrupt_ends_only_what_may_end() -> None:
    async def scene(kernel: Kernel, files: FuseFiles, session: Session) -> None:
        await kernel.say(Op.CREATE, struct.pack("=IIII", 0, 0o644, 0, 0) + b"slow\0", number=2)
        await kernel.say(Op.INTERRUPT, struct.pack("=Q", 2), number=3)
        assert (await kernel.hear())[:2] == (2, 0)
        inode = files.names[b"slow"]
        await kernel.say(Op.OPEN, struct.pack("=II", 0, 0), number=4, inode=inode)
        await kernel.say(Op.INTERRUPT, struct.pack("=Q", 99), number=5)
        await kernel.say(Op.INTERRUPT, struct.pack("=Q", 4), number=5)
        assert await kernel.hear() == (4, errno.EINTR, b"")

    played(scene)


def test_the_end_stops_what_waits() -> None:
    async def scene(kernel: Kernel, files: FuseFiles, session: Session) -> None:
        await kernel.say(Op.CREATE, struct.pack("=IIII", 0, 0o644, 0, 0) + b"slow\0", number=2)
        await kernel.hear()
        inode = files.names[b"slow"]
        await kernel.say(Op.OPEN, struct.pack("=II", 0, 0), number=4, inode=inode)
        while not session.waiting(Op.OPEN):
            await asyncio.sleep(0)
        await session.drain()
        assert await kernel.hear() == (4, errno.ENOTCONN, b""), "no signal has come to the program"

    played(scene)


class Begun(FuseFiles):
    """Removes names after a while, or at once."""

    def __init__(self) -> None:
        super().__init__()
        self.tasks: list[asyncio.Task[None] | None] = []

    async def unlink(self, parent: int, caller: Caller, name: bytes) -> None:  # type: ignore[override]
        self.tasks.append(asyncio.current_task())
        if name.startswith(b"slow"):
            await asyncio.sleep(0)
            self.tasks.append(asyncio.current_task())
            async with asyncio.timeout(10):
                await asyncio.sleep(0)
        if name.endswith(b"gone"):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))


def test_a_change_is_started_before_there_is_a_task_for_it() -> None:
    async def scene(kernel: Kernel, files: FuseFiles, session: Session) -> None:
        for number, name in enumerate([b"slow", b"slow gone", b"quick", b"quick gone"]):
            await kernel.say(Op.UNLINK, name + b"\0", number=number)
            assert await kernel.hear() == (number, errno.ENOENT if name.endswith(b"gone") else 0, b"")
        assert isinstance(files, Begun)
        assert [task is not None for task in files.tasks] == [False, True, False, True, False, False]

    played(scene, Begun)


class Stalled(FuseFiles):
    """Storage does not answer: writes wait."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = asyncio.Event()

    async def write(
        self, inode: int, caller: Caller, handle: int, offset: int, data: memoryview, how: int, flags: int
    ) -> int:
        await self.answers.wait()
        return await super().write(inode, caller, handle, offset, data, how, flags)


@pytest.mark.parametrize(("writes", "size", "are_read"), [(300, 4 << 10, True), (70, 1 << 20, False)])
def test_other_requests_are_read_beside_writes_that_wait(writes: int, size: int, are_read: bool) -> None:
    """Only what they hold is bounded, not how many there are."""

    async def scene(kernel: Kernel, files: FuseFiles, session: Session) -> None:
        assert isinstance(files, Stalled)
        await kernel.say(Op.CREATE, struct.pack("=IIII", 0, 0o644, 0, 0) + b"a\0", number=2)
        await kernel.hear()
        inode = files.names[b"a"]

        async def write(number: int) -> None:
            head = struct.pack("=QQIIQII", 1, 0, size, 0, 0, 0, 0)
            await kernel.say(Op.WRITE, head + bytes(size), number=number, inode=inode)

        async def say() -> None:
            for number in range(writes):
                await write(1000 + number)
            await kernel.say(Op.LOOKUP, b"a\0", number=3)

        saying = asyncio.create_task(say())
        hearing = asyncio.create_task(kernel.hear())
        if are_read:
            assert (await asyncio.wait_for(asyncio.shield(hearing), 30))[:2] == (3, 0)
        else:
            while session.waiting(Op.WRITE) < 64:  # a busy machine copies them slowly
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.3)  # the others are there to be read
            assert not hearing.done() and session.waiting(Op.WRITE) == 64
        files.answers.set()
        heard = {(await hearing)[0]} if not are_read else set()
        while len(heard) < writes + (not are_read):
            heard.add((await kernel.hear())[0])
        await saying
        assert heard >= {1000 + number for number in range(writes)}

    played(scene, Stalled)
