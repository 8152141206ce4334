from threefs_fsck.findings import CLEAN, CORRECTED, UNCORRECTED, Finding, Report, of_wire

from threefs.wire import meta_pb2 as pb


def test_the_exit_code_is_that_of_fsck() -> None:
    mended, left = Finding("orphan", "x", repaired=True), Finding("loop", "y")
    assert Report().exit_code == CLEAN == 0
    assert Report([mended]).exit_code == CORRECTED == 1
    assert Report([mended, left]).exit_code == UNCORRECTED == 4
    assert Report([mended], complete=False).exit_code == UNCORRECTED
    assert Report(complete=False).exit_code == UNCORRECTED
    assert Report([mended, left, left]).kinds == {"orphan": 1, "loop": 2}


def test_findings_of_the_wire() -> None:
    row = pb.FsckFinding(kind=pb.DANGLING_ENTRY, inode=9, parent=1, name=b"a", detail="why", repaired=True)
    assert of_wire([row]) == [Finding("dangling_entry", "why", 9, 1, b"a", True)]
