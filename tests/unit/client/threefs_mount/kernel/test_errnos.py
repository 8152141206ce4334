import errno

import pytest
from threefs_mount.kernel import errnos

from threefs import errors


@pytest.mark.parametrize(
    ("error", "number"),
    [
        (errors.NotFound(), errno.ENOENT),
        (errors.NotEmpty(), errno.ENOTEMPTY),
        (errors.NoSpace(), errno.ENOSPC),
        (errors.SessionLost(), errno.ESTALE),
        (errors.DeadlineExceeded(), errno.ETIMEDOUT),
        (errors.Unavailable(), errno.ETIMEDOUT),
        (errors.OutcomeUnknown(), errno.EIO),
        (errors.Internal(), errno.EIO),
        (errors.UnknownMethod(), errno.EIO),
        (errors.WrongCluster(), errno.EIO),
        (ValueError(), errno.EIO),
        (OSError(errno.EINVAL, ""), errno.EINVAL),
    ],
)
def test_what_a_program_sees(error: Exception, number: int) -> None:
    assert errnos.of(error) == number


def test_an_error_of_a_number_says_what_it_means() -> None:
    error = errnos.error(errno.ENODATA)
    assert errnos.of(error) == errno.ENODATA and error.strerror
