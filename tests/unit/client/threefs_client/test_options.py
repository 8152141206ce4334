from typing import Any

import pytest
from threefs_client import options

from threefs.errors import InvalidArgument


def test_unknown_and_senseless_options_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="'speed'"):
        options.make(speed=11)
    wrong: list[dict[str, Any]] = [
        {"timeout_s": 0},
        {"timeout_s": -1},
        {"timeout_s": 1201},
        {"timeout_s": float("inf")},
        {"request_bytes": 0},
        {"request_bytes": 1.5},
    ]
    for chosen in wrong:
        with pytest.raises(InvalidArgument, match=next(iter(chosen))):
            options.make(**chosen)


def test_the_token_is_neither_shown_nor_passed_on() -> None:
    made = options.make(token="hush", timeout_s=3.0)
    assert "hush" not in repr(made)
    assert made.key(()) == ("hush", "the option token")
    assert "token" not in made.without_token()
    assert options.make(**made.without_token()).timeout_s == 3.0


def test_the_token_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THREEFS_TOKEN", "from outside")
    assert options.make().key(()) == ("from outside", "$THREEFS_TOKEN")
    assert options.make(token="chosen").key(())[0] == "chosen"
