"""The public test suite of POSIX file systems on the mount. Its checkout, built, is named by THREEFS_PJDFSTEST."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.cluster import LocalCluster
from tests.harness.mounts import Mount, need_mounts

VARIABLE = "THREEFS_PJDFSTEST"
CHECKOUT = Path(os.environ.get(VARIABLE, "/nowhere"))
#: Files of the suite that fail, with the reasons in docs/posix.md.
DEVIATIONS: set[str] = set()
LIMIT_S = 3600

need_mounts()
if not (CHECKOUT / "pjdfstest").exists():
    pytest.skip(f"${VARIABLE} names no built checkout of pjdfstest", allow_module_level=True)
if shutil.which("prove") is None:
    pytest.skip("prove (of perl) is not installed", allow_module_level=True)


@pytest.fixture(scope="module")
def mounted(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with Mount(cluster.address, tmp_path_factory.mktemp("pjdfstest") / "mnt") as root:
        yield root


@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize("group", sorted(path.name for path in (CHECKOUT / "tests").glob("*/")))
def test_group(mounted: Path, group: str) -> None:
    files = sorted(str(path) for path in (CHECKOUT / "tests" / group).glob("*.t"))
    wanted = [path for path in files if "/".join(Path(path).parts[-2:]) not in DEVIATIONS]
    place = mounted / group
    place.mkdir()
    done = subprocess.run(["prove", *wanted], cwd=place, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
