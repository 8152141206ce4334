"""What the pages for users say is run: Python on a real cluster, command lines through the parser."""

import ast
import errno
import os
import re
import shlex
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from threefs_cli.main import main

from tests.harness.cluster import LocalCluster
from threefs import errors

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
WRITTEN_ADDRESS = "threefs://127.0.0.1:7000"
CONNECTS = re.compile(r"threefs\.connect\(|fsspec\.filesystem\(")
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^ *(?:sudo -u threefs )?(threefs [^#\n`]*)", re.MULTILINE)
LINK = re.compile(r"\]\(([^)#:]+)\)")
QUOTED = re.compile(r"^\| `([^`]+)`", re.MULTILINE)
FILLED_IN = re.compile(r"\.\.\.|\b[A-Z]{2,}(?::[A-Z]+)?\b|\bN\b|\b\d+\b")


def with_python() -> list[Path]:
    """Pages that use a running cluster (cluster.md makes one of its own, and has a test of its own)."""
    return [page for page in PAGES if CONNECTS.search(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("page", with_python(), ids=lambda page: page.name)
def test_the_python_of_a_page_runs_from_top_to_bottom(page: Path, cluster: LocalCluster) -> None:
    names: dict[str, Any] = {"__name__": "page"}
    text = page.read_text(encoding="utf-8")
    if "import torch" in text:
        pytest.importorskip("torch", reason="torch is not installed (make ml-venv)")
        warnings.simplefilter("ignore")  # its warnings are not ours; pytest sets the filters back
    for part in PYTHON.findall(text):
        exec(compile(part.replace(WRITTEN_ADDRESS, cluster.address), str(page), "exec"), names)  # noqa: S102
    getattr(names["fs"], "client", names["fs"]).close()


def test_the_pages_are_found() -> None:
    assert {"README.md", "python.md", "fsspec.md", "datasets.md", "checkpoints.md"} <= {
        page.name for page in with_python()
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_command_lines_are_understood(page: Path) -> None:
    for line in COMMAND.findall(page.read_text(encoding="utf-8")):
        name, *arguments = shlex.split(line)[1:]
        assert name in main.commands, line
        main.commands[name].make_context(name, arguments)  # exits for what it does not understand


def verbs(command: click.Command, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            yield from verbs(below, (*words, name))
    else:
        yield words


def test_each_command_has_an_example_on_a_page() -> None:
    texts = [page.read_text(encoding="utf-8") for page in PAGES]
    lines = [shlex.split(line)[1:] for text in texts for line in COMMAND.findall(text)]
    shown = {tuple(line[:length]) for line in lines for length in (1, 2)}
    assert [verb for verb in verbs(main) if verb not in shown] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def texts_of_the_program() -> list[str]:
    """Whatever is filled into a text is a NUL."""
    found = []
    for path in (path for folder in ("client", "services", "threefs") for path in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = (part.value if isinstance(part, ast.Constant) else "\0" for part in node.values)
                found.append("".join(map(str, parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return found


def test_each_message_that_the_page_of_troubles_quotes_is_one_of_the_program() -> None:
    """A user looks for what the program has said."""
    known = {*errno.errorcode.values(), *map(os.strerror, errno.errorcode), *vars(errors)}
    texts = texts_of_the_program()
    quoted = QUOTED.findall((ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8"))
    assert len(quoted) > 20
    for message in (message for message in quoted if message not in known):
        for part in filter(None, (part.strip(" ,") for part in FILLED_IN.split(message))):
            assert any(part in text for text in texts), f"nothing says {part!r}, of {message!r}"
