"""What a fork does to open streams."""

import asyncio
import os
import signal

from threefs.env.net import RealNet, Stream


def test_a_child_lets_go_of_connections_and_does_not_disturb_the_parent() -> None:
    async def work() -> None:
        accepted: list[Stream] = []
        listener = await RealNet().listen("127.0.0.1", 0, accepted.append)
        stream = await RealNet().connect(listener.address, 5.0)
        while not accepted:
            await asyncio.sleep(0.001)
        readable = asyncio.Event()
        stream.on_readable(readable.set)
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            signal.alarm(30)
            os.read(reading, 1)  # outlive the parent's connection
            os._exit(0)
        accepted[0].send([b"still here"])
        await asyncio.wait_for(readable.wait(), 10)
        view = memoryview(bytearray(10))
        assert stream.recv_into([view]) == 10
        ended = asyncio.Event()
        accepted[0].on_readable(ended.set)
        stream.close()
        await asyncio.wait_for(ended.wait(), 10)
        assert accepted[0].recv_into([view]) == 0, "the child must not keep the connection open"
        os.write(writing, b"x")
        assert os.waitpid(pid, 0)[1] == 0
        os.close(reading)
        os.close(writing)
        accepted[0].close()
        listener.close()

    asyncio.run(work())
