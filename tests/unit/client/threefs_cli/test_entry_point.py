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
