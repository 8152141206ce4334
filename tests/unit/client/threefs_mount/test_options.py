import pytest
from threefs_fuse.mounting import MountRequest
from threefs_mount.options import MountOptions

from threefs.errors import InvalidArgument


def test_options_of_the_kernel() -> None:
    told = MountOptions(flags=("ro",)).for_kernel("threefs://a:1,b:2", "/mnt")
    assert told == MountRequest("/mnt", "threefs://a:1,b:2", "threefs", ("ro",), allow_other=True)
    assert not MountOptions(allow_other=False).for_kernel("x", "/mnt").allow_other


def test_a_user_that_may_only_read_changes_no_access_times() -> None:
    assert MountOptions(flags=("ro",)).noatime and MountOptions(flags=("nosuid", "noatime")).noatime
    assert not MountOptions(flags=("rw",)).noatime


@pytest.mark.parametrize(
    "wrong", [{"cache_s": -1}, {"timeout_s": 0}, {"timeout_s": 1201}, {"max_dirty_bytes": 5}, {"flags": ("magic",)}]
)
def test_what_cannot_be(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidArgument):
        MountOptions(**wrong)  # type: ignore[arg-type]
