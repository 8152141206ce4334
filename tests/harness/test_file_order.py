from tests.harness.file_order import in_turns


def test_files_with_and_without_processes_alternate() -> None:
    files = {"chaos/test_a.py": [0.0], "cluster/test_b.py": [0.0]}
    files |= {f"unit/test_{number}.py": [0.0] for number in range(4)}
    assert [file[0] for file in in_turns(files)] == [*"ucuucu"]


def test_files_that_compute_take_room_by_their_tests() -> None:
    files = {f"e2e/test_{number}.py": [0.0] for number in range(8)}
    files |= {"unit/test_small.py": [0.0] * 10, "unit/test_large.py": [0.0] * 30}
    assert [file[0] for file in in_turns(files)] == [*"eeeueeeeue"]
    assert in_turns(files)[3] == "unit/test_large.py"


def test_those_with_long_limits_come_first_then_those_with_many_tests() -> None:
    files = {"test_few.py": [0.0], "test_many.py": [0.0] * 9, "test_long.py": [0.0, 200.0], "test_longer.py": [300.0]}
    assert in_turns(files) == ["test_longer.py", "test_long.py", "test_many.py", "test_few.py"]


def test_nothing_is_lost() -> None:
    assert in_turns({}) == []
    assert in_turns({"unit/test_a.py": [0.0]}) == ["unit/test_a.py"]


def test_long_files_do_not_come_all_at_once() -> None:
    files = {f"e2e/test_{number}.py": [300.0 if number < 2 else 0.0] for number in range(6)}
    files |= {f"unit/test_{number}.py": [0.0] for number in range(4)}
    assert [file[0] for file in in_turns(files)] == [*"ueueueeeue"]
