import resource

import pytest

from tests.harness.children import in_child
from threefs.env.descriptors import most_connections, raise_limit


@pytest.mark.parametrize(("soft", "most"), [(1024, 512), (100, 50), (20_000, 4096)])
def test_connections_leave_descriptors_for_the_rest(soft: int, most: int) -> None:
    def child() -> None:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert most_connections(4096) == most

    assert in_child(child) == 0


def test_the_limit_is_raised_as_far_as_that_is_free() -> None:
    def child() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, 3000))
        raise_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (3000, 3000)

    assert in_child(child) == 0
