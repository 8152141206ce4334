import pytest
from threefs_manager.placement.write_minimum import check_minimum, default_minimum

from threefs.errors import InvalidArgument


@pytest.mark.parametrize(("replicas", "minimum"), [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3)])
def test_half_of_all_must_serve(replicas: int, minimum: int) -> None:
    assert default_minimum(replicas) == minimum
    check_minimum(minimum, replicas)
    with pytest.raises(InvalidArgument, match=f"must be 1 to {replicas}, not {replicas + 1}"):
        check_minimum(replicas + 1, replicas)
