import pytest

from threefs.env.side_thread import SideThread, new_condition


def test_calls_are_made_in_their_order_beside_the_caller() -> None:
    thread, condition, seen = SideThread("test"), new_condition(), list[int]()

    def append(number: int) -> int:
        with condition:
            condition.wait_for(lambda: go)
        seen.append(number)
        return number

    go = False
    calls = [thread.start(lambda number=number: append(number)) for number in range(5)]  # type: ignore[misc]
    assert not seen and not calls[0].done()
    with condition:
        go = True
        condition.notify_all()
    assert [call.result() for call in calls] == seen == [0, 1, 2, 3, 4]
    thread.close()


def test_the_error_of_a_call_comes_with_its_result() -> None:
    thread = SideThread("test")
    nothing = list[int]()
    failed = thread.start(lambda: nothing[0])
    with pytest.raises(IndexError):
        failed.result()
    assert thread.start(lambda: 1).result() == 1
    thread.close()
