import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path

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


CONNECTS = """
from threefs.env.clock import CLOCK
from threefs.env.random import RANDOM
from threefs_client.context import grants_of
from threefs_client.options import Options
assert grants_of(Options(), None, CLOCK, RANDOM) is not None
"""


def test_a_warning_of_the_slots_does_not_reach_the_output_of_the_program(tmp_path: Path) -> None:
    """Any user may make the directory of another one in /tmp. `threefs cat` had the warning among the bytes."""
    (tmp_path / "threefs").write_text("in the way")
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", CONNECTS], env=environment, capture_output=True, text=True, check=True)
    assert not done.stdout
    assert "budget" in done.stderr and "File exists" in done.stderr and "XDG_RUNTIME_DIR" in done.stderr
