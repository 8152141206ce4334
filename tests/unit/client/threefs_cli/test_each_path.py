import asyncio

import pytest
from threefs_cli.each_path import raise_last, with_each, with_each_blocking

from threefs.errors import NotFound, ThreefsError, Unavailable


def worked(*paths: str) -> tuple[list[tuple[str, int]], list[ThreefsError]]:
    def work(path: str) -> int:
        if path == "missing":
            raise NotFound(path)
        if path == "silent":
            raise Unavailable(path)
        return len(path)

    async def later(path: str) -> int:
        return work(path)

    done, failures = with_each_blocking(paths, work)
    also_done, also_failures = asyncio.run(with_each(paths, later))
    assert done == also_done and [str(error) for error in failures] == [str(error) for error in also_failures]
    return done, failures


def test_a_path_that_fails_keeps_the_others_from_nothing() -> None:
    done, failures = worked("a", "missing", "bb", "missing")
    assert done == [("a", 1), ("bb", 2)]
    assert [str(error) for error in failures] == ["missing", "missing"]


def test_a_cluster_that_does_not_answer_is_not_waited_for_by_each_path() -> None:
    done, failures = worked("a", "silent", "bb")
    assert done == [("a", 1)] and [type(error) for error in failures] == [Unavailable]


def test_all_failures_are_told_and_the_last_one_ends_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    raise_last([])
    with pytest.raises(NotFound, match="second"):
        raise_last([NotFound("fi\x07rst"), NotFound("second")])
    assert capsys.readouterr().err == "Error: fi\\x07rst\n"
