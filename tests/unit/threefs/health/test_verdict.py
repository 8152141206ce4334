from threefs.health import verdict
from threefs.health.verdict import Reason, Severity

WARNING = Reason("disk_nearly_full", Severity.WARN, "the disk of node 2 is 90 % full", "remove files")
ERROR = Reason("chain_unserved", Severity.ERR, "chain 3 has 0 of 3 copies", "start node 2")


def test_the_worst_reason_counts() -> None:
    assert verdict.severity([]) is Severity.OK
    assert verdict.severity([WARNING]) is Severity.WARN
    assert verdict.severity([WARNING, ERROR, WARNING]) is Severity.ERR
    assert [int(one) for one in Severity] == [0, 1, 2]
