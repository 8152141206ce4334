import os
import signal
import subprocess
import sys

import pytest

#: Ctrl-C comes when that module is looked for.
INTERRUPTED = """
import os, signal, sys

class Interrupting:
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
sys.argv = ["threefs", "key", "--help"]
from threefs_cli.entry_point import main
main()
"""


def run(module: str, *, ignored: bool = False) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", INTERRUPTED.format(module=module)],
        capture_output=True,
        text=True,
        preexec_fn=(lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)) if ignored else None,
    )


@pytest.mark.parametrize("module", ["click", "threefs_cli.key_command"])
def test_ctrl_c_ends_the_program_without_a_traceback_while_it_imports_its_modules(module: str) -> None:
    done = run(module)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_a_program_that_was_started_to_ignore_ctrl_c_goes_on() -> None:
    done = run("threefs_cli.key_command", ignored=True)
    assert done.returncode == 0 and "Usage: " in done.stdout


@pytest.mark.parametrize(("closed", "code"), [(0, 0), (1, 1), (2, 0)])
def test_a_standard_stream_that_is_closed_is_replaced_by_one_whose_use_fails(closed: int, code: int) -> None:
    """Or the next socket would get its number, and uvloop would abort the process at the end."""
    program = (
        "import os, sys, uvloop\n"
        "from threefs_cli import entry_point\n"
        "entry_point._fill_standard_streams()\n"
        "async def work():\n"
        "    return None\n"
        "uvloop.run(work())\n"
        "assert None not in (sys.stdin, sys.stdout, sys.stderr)\n"
        "sys.argv = ['threefs', '--version']\n"
        "entry_point.main()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, preexec_fn=lambda: os.close(closed))
    assert done.returncode == code
    said = done.stderr.decode()
    assert said == ("Error: Bad file descriptor\n" if closed == 1 else "")
