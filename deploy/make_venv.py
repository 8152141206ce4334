"""Make a virtual environment with the quickest Python there is: `python3 deploy/make_venv.py DIRECTORY`.

Most of what threefs does is done by Python, and one that was built with profile-guided optimisation does it in about
four fifths of the time. Distributions build theirs so. One that was compiled on the machine, as pyenv does it, mostly
was not: then that of the system is taken, if there is one of the same version.
"""

import subprocess
import sys
import sysconfig
from pathlib import Path

#: Distributions divide Python into packages, and small installations lack some.
_NEEDED = "import asyncio, bz2, ctypes, ensurepip, lzma, multiprocessing, sqlite3, ssl, venv"


def quickest(running: Path, built_with: str, system: Path) -> Path:
    """`running` is the Python that runs this, and `built_with` what its `configure` was told; `system` may exist."""
    if "--enable-optimizations" in built_with or not system.exists():
        return running
    works = subprocess.run([system, "-c", _NEEDED], stderr=subprocess.DEVNULL, check=False).returncode == 0
    return system if works else running


if __name__ == "__main__":
    of_system = Path("/usr/bin") / f"python{sys.version_info.major}.{sys.version_info.minor}"
    python = quickest(Path(sys.executable), str(sysconfig.get_config_var("CONFIG_ARGS")), of_system)
    sys.exit(subprocess.run([python, "-m", "venv", "--clear", sys.argv[1]], check=False).returncode)
