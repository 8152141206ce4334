"""What the pages for users say is run: Python on a real cluster, command lines through the parser."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from threefs_cli.main import main

from tests.harness.cluster import LocalCluster

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
WRITTEN_ADDRESS = "threefs://127.0.0.1:7000"
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^ *(threefs [^#\n`]*)", re.MULTILINE)
LINK = re.compile(r"\]\(([^)#:]+)\)")


def with_python() -> list[Path]:
    """Pages that use a running cluster (cluster.md makes one of its own, and has a test of its own)."""
    return [page for page in PAGES if "threefs.connect(" in page.read_text(encoding="utf-8")]


@pytest.mark.parametrize("page", with_python(), ids=lambda page: page.name)
def test_the_python_of_a_page_runs_from_top_to_bottom(page: Path, cluster: LocalCluster) -> None:
    names: dict[str, Any] = {"__name__": "page"}
    for part in PYTHON.findall(page.read_text(encoding="utf-8")):
        exec(compile(part.replace(WRITTEN_ADDRESS, cluster.address), str(page), "exec"), names)  # noqa: S102
    names["fs"].close()


def test_the_pages_are_found() -> None:
    assert {"README.md", "python.md", "datasets.md", "checkpoints.md"} <= {page.name for page in with_python()}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_command_lines_are_understood(page: Path) -> None:
    for line in COMMAND.findall(page.read_text(encoding="utf-8")):
        name, *arguments = shlex.split(line)[1:]
        assert name in main.commands, line
        main.commands[name].make_context(name, arguments)  # exits for what it does not understand


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target
