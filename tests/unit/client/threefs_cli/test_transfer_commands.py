import asyncio
import json
from pathlib import Path

import pytest
from threefs_cli import tree_copy
from threefs_cli.cluster_selector import ClusterSelector
from threefs_cli.local_tree import LocalTree
from threefs_cli.transfer_commands import _copy
from threefs_client.async_filesystem import AsyncFileSystem

from tests.harness.memory_cluster import MemoryFiles


@pytest.mark.parametrize("grown", [9, tree_copy.SMALL_BYTES + 1])
def test_the_summary_has_the_bytes_that_were_copied(
    grown: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file may grow after it was listed, and those of /proc have no length."""
    file, listed = tmp_path / "log", grown - 4
    file.write_bytes(b"x" * listed)
    tree = LocalTree()
    tree.add(str(file), "/log", recursive=False)
    file.write_bytes(b"x" * grown)

    async def run(as_json: bool) -> None:
        fs = AsyncFileSystem(MemoryFiles().context)
        await _copy(ClusterSelector(None, None, as_json), tree, lambda moved: tree_copy.put(fs, tree, moved))

    asyncio.run(run(True))
    assert json.loads(capsys.readouterr().out)["length_bytes"] == grown
    asyncio.run(run(False))
    assert capsys.readouterr().out.startswith("1 file, 9 B in " if grown == 9 else "1 file, 1.0 MiB in ")
