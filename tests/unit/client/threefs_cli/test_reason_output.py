from threefs_cli import reason_output

from threefs.health.verdict import Reason, Severity

WARNING = Reason("disk_nearly_full", Severity.WARN, "the disk of node 2 is 90 % full", "remove files")
ERROR = Reason("chain_unserved", Severity.ERR, "chain 3 has 0 of 3 copies\x1b", "start node 2")


def test_people_see_the_worst_reason_first_and_what_to_do() -> None:
    assert list(reason_output.lines([WARNING, ERROR])) == [
        "ERR   chain_unserved: chain 3 has 0 of 3 copies\\x1b",
        "      do: start node 2",
        "WARN  disk_nearly_full: the disk of node 2 is 90 % full",
        "      do: remove files",
    ]


def test_programs_get_the_code_and_the_severity() -> None:
    assert reason_output.describe([]) == {"health": "OK", "reasons": []}
    described = reason_output.describe([WARNING, ERROR])
    assert described["health"] == "ERR"
    assert described["reasons"][0] == {
        "code": "disk_nearly_full",
        "severity": "WARN",
        "summary": "the disk of node 2 is 90 % full",
        "advice": "remove files",
    }
