import pytest
from threefs_bench.load import options
from threefs_bench.load.values import Pair

from threefs.errors import InvalidArgument


@pytest.mark.parametrize(
    ("wrong", "nearest"),
    [
        ("iodept", "iodepth"),
        ("numjob", "numjobs"),
        ("blok_size", "blocksize"),
        ("ramptime", "ramp_time"),
        ("zz", "size"),
    ],
)
def test_an_unknown_option_names_the_nearest_one(wrong: str, nearest: str) -> None:
    with pytest.raises(InvalidArgument, match=f"no option '{wrong}'; the nearest one is '{nearest}'"):
        options.canonical(wrong)


def test_names_may_have_dashes_and_fio_s_other_names() -> None:
    assert options.canonical("time-based") == "time_based"
    assert options.canonical("readwrite") == "rw" and options.canonical("blocksize") == "bs"
    assert options.canonical("output_format", ["output-format"]) == "output-format"


def test_values_that_are_not_given_have_defaults() -> None:
    found = options.parse({"bs": "8k", "time_based": "1"})
    assert found["bs"] == Pair(8192, 8192) and found["time_based"]
    assert found["rw"] == "read" and found["ioengine"] == "native" and found["numjobs"] == 1
    assert set(found) == set(options.BY_NAME)


def test_a_bad_value_names_its_option() -> None:
    with pytest.raises(InvalidArgument, match=r"^bs=4x: '4x' is not a size"):
        options.parse({"bs": "4x"})
    with pytest.raises(InvalidArgument, match="ioengine=libaio: 'libaio' is none of native, posix, meta"):
        options.parse({"ioengine": "libaio"})
    with pytest.raises(InvalidArgument, match="metaop="):
        options.parse({"metaop": "creat/50:stat/50"})


def test_every_option_says_what_it_is() -> None:
    for option in options.OPTIONS:
        assert option.help.endswith(".") and len(option.help) > 10, option.name
    assert len(options.BY_NAME) == len(options.OPTIONS)
