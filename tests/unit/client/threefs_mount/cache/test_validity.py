from threefs_mount.cache.validity import Validity


def test_an_answer_is_valid_for_its_time_from_the_question_on() -> None:
    validity = Validity(2.0)
    assert validity
    assert validity.is_valid(10.0, 10.0) and validity.left_s(10.0, 10.0) == 2.0
    assert validity.is_valid(10.0, 11.5) and validity.left_s(10.0, 11.5) == 0.5


def test_an_answer_expires_at_one_moment_by_every_method() -> None:
    validity = Validity(2.0)
    expiry_s = validity.expiry_s(10.0)
    assert expiry_s == 12.0
    for now_s in (expiry_s, expiry_s + 5.0):
        assert not validity.is_valid(10.0, now_s) and validity.left_s(10.0, now_s) == 0.0


def test_without_a_cache_no_answer_is_valid() -> None:
    validity = Validity(0.0)
    assert not validity
    assert not validity.is_valid(10.0, 10.0) and not validity.left_s(10.0, 10.0)
