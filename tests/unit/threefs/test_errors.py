import errno
import pickle

import pytest

from threefs import errors
from threefs.errors import Retry, ThreefsError


def leaves(cls: type[ThreefsError] = ThreefsError) -> list[type[ThreefsError]]:
    return [cls] + [leaf for sub in cls.__subclasses__() for leaf in leaves(sub)]


@pytest.mark.parametrize("leaf", leaves(), ids=lambda leaf: leaf.__name__)
def test_every_error_survives_the_wire(leaf: type[ThreefsError]) -> None:
    back = errors.error_of(leaf.code, "chunk 3 of inode 7")
    assert type(back) is leaf
    assert back.errno == leaf.posix
    assert str(back) == "chunk 3 of inode 7"


def test_every_error_is_a_public_name() -> None:
    assert {leaf.__name__ for leaf in leaves()} == set(errors.__all__) - {"Retry", "error_of"}


def test_codes_are_unique() -> None:
    codes = [leaf.code for leaf in leaves()]
    assert len(codes) == len(set(codes))
    assert 0 not in codes, "0 means success on the wire"


def test_a_code_of_a_newer_peer_is_still_an_error() -> None:
    assert type(errors.error_of(9999, "new")) is ThreefsError
    assert errors.error_of(9999).retry is Retry.NEVER


def test_errors_are_what_python_programs_catch() -> None:
    with pytest.raises(FileNotFoundError):
        raise errors.NotFound("/a/b")
    with pytest.raises(TimeoutError):
        raise errors.DeadlineExceeded()
    with pytest.raises(OSError, match="the disk is full") as caught:
        raise errors.NoSpace("target 101: the disk is full")
    assert caught.value.errno == errno.ENOSPC


def test_without_a_message_the_class_speaks() -> None:
    assert str(errors.NotEmpty()) == "The directory is not empty"


def test_an_error_that_may_have_had_its_effect_never_claims_to_be_safe() -> None:
    for unknown in (errors.ConnectionLost, errors.DeadlineExceeded, errors.MaybeCommitted, errors.OutcomeUnknown):
        assert unknown.retry is Retry.UNKNOWN


@pytest.mark.parametrize("leaf", leaves(), ids=lambda leaf: leaf.__name__)
def test_every_error_travels_between_processes(leaf: type[ThreefsError]) -> None:
    copy = pickle.loads(pickle.dumps(leaf("what happened")))  # noqa: S301
    assert type(copy) is leaf and copy.message == "what happened" and copy.errno == leaf.posix
    assert vars(copy) == vars(leaf("what happened"))
