import getpass
import os

import pytest
from threefs_cli.config_commands import author, shown_value


@pytest.mark.parametrize("error", [KeyError("uid not found"), OSError("no name")])
def test_a_user_without_a_name_is_a_number(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    assert author() == f"{getpass.getuser()}@{os.uname().nodename}"

    def fail() -> str:
        raise error

    monkeypatch.setattr(getpass, "getuser", fail)
    assert author() == f"{os.getuid()}@{os.uname().nodename}"


def test_values_that_this_release_does_not_take_are_shown_as_they_are_stored() -> None:
    assert shown_value("full_ratio", "0.9") == "0.9"
    assert shown_value("full_ratio", None) == "0.98"
    assert shown_value("full_ratio", "7") == "7"
    assert shown_value("of_a_later_release", "7") == "7"
    assert shown_value("of_a_later_release", None) == "default"
