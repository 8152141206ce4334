"""The bugs on purpose still fit the program, and what is to catch them is there."""

import json
import multiprocessing
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.sim.golden.failovers import STORIES
from tests.sim.planted.catalog import PLANTED, TESTED
from tests.sim.planted.under_pytest import failure_of
from tests.sim.planted_bug_hunt import FIRST_TRIES, main

_ROOT = Path(__file__).parents[2]


def test_each_bug_can_be_planted() -> None:
    for name, plant in PLANTED.items():
        process = multiprocessing.get_context("fork").Process(target=plant)
        process.start()
        process.join()
        assert process.exitcode == 0, f"{name} cannot be planted any more"


def test_each_bug_has_a_story_a_seed_or_a_test_that_is_tried_first() -> None:
    first = json.loads(FIRST_TRIES.read_text(encoding="utf-8"))
    assert not PLANTED.keys() - first.keys() - TESTED.keys() and not first.keys() & TESTED.keys()
    assert not {attempt for attempt in first.values() if isinstance(attempt, str)} - STORIES.keys()
    for test in TESTED.values():
        file, name = test.split("[")[0].split("::")
        assert f"def {name}(" in (_ROOT / file).read_text(encoding="utf-8"), f"{test} is not there"


def test_no_page_counts_the_bugs() -> None:
    """There are more from week to week."""
    counted = re.compile(r"`make planted`: (over )?\d|\b\d+ (planted )?bugs|bugs, `make planted[^`]*`: (over )?\d")
    pages = [_ROOT / "README.md", _ROOT / "CONTRIBUTING.md", *(_ROOT / "docs").rglob("*.md")]
    found = {page.name: match.group() for page in pages if (match := counted.search(page.read_text(encoding="utf-8")))}
    assert not found, f"{found}: `python -m tests.sim.planted_bug_hunt --list` counts them"


def test_the_list_has_each_bug_with_what_is_tried_first() -> None:
    *lines, total = CliRunner().invoke(main, ["--list"]).output.splitlines()
    assert [line.split(maxsplit=1)[0] for line in lines] == list(PLANTED)
    assert total.startswith(f"{len(PLANTED)} bugs: ") and total.endswith(f"{len(TESTED)} for a real test")


def test_a_real_test_that_fails_with_its_bug_differs_from_one_that_cannot_be_run() -> None:
    test = "tests/unit/threefs/rpc/test_frames.py::test_no_bit_of_header_and_body_changes_unnoticed"
    assert "the test fails" in failure_of(test, "frame_checksum_ignored")
    assert not failure_of(test, "nonce_is_used_again")
    with pytest.raises(RuntimeError, match="cannot be run"):
        failure_of(f"{test}_at_all", "frame_checksum_ignored")
