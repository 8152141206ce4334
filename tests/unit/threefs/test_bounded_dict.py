from threefs.bounded_dict import BoundedDict


def test_the_entry_that_was_put_longest_ago_goes() -> None:
    numbers = BoundedDict[str, int](3)
    assert [numbers.put(key, n) for n, key in enumerate("abc")] == [None, None, None]
    assert numbers.put("a", 3) is None, "it was there: nothing has to go"
    assert numbers.put("d", 4) == ("b", 1)
    assert list(numbers.items()) == [("c", 2), ("a", 3), ("d", 4)]


def test_it_never_grows_beyond_its_bound() -> None:
    numbers = BoundedDict[int, int](10)
    for number in range(100):
        numbers.put(number % 37, number)
        assert len(numbers) <= 10
    assert numbers.pop(99 % 37) == 99
