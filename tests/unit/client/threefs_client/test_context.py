import asyncio
import socket

import pytest
from threefs_client import context
from threefs_client.options import Options

from threefs.errors import Unavailable


def test_a_manager_that_is_not_there_is_named_with_what_to_start() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"

        async def work() -> None:
            with pytest.raises(Unavailable, match=f"{address}.*threefs up"):
                await context.connect((address,), Options(connect_timeout_s=0.3))
            assert asyncio.all_tasks() == {asyncio.current_task()}, "nothing is left running"

        asyncio.run(work())


def test_something_that_does_not_answer_is_unavailable_too() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(Unavailable, match=address):
            asyncio.run(context.connect((address,), Options(connect_timeout_s=0.3)))
