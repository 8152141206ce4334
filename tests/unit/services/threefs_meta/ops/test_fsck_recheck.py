import pytest
from threefs_meta.ops.fsck_recheck import MAX_NAMES, MAX_SUBJECTS, fsck_recheck
from threefs_meta.store import keys

from tests.harness import damage
from tests.harness.meta_harness import MetaBench
from threefs.errors import InvalidArgument
from threefs.ids import ROOT
from threefs.wire import meta_pb2 as pb


async def test_a_repair_is_done_once_and_a_repeat_gets_its_result(bench: MetaBench) -> None:
    await damage.put_entry(bench, ROOT, b"x", 99, pb.FILE)
    subjects = [pb.FsckSubject(key=keys.inode(7)), pb.FsckSubject(key=keys.entry(ROOT, b"x"))]
    found = await fsck_recheck(bench.context, pb.FsckRecheckRequest(subjects=subjects))
    assert [(one.subject, one.kind, one.name, one.repaired) for one in found.findings] == [
        (1, pb.DANGLING_ENTRY, b"x", False)
    ]
    request = pb.FsckRecheckRequest(mutation=bench.mutation(), repair=True, subjects=subjects)
    first = await fsck_recheck(bench.context, request)
    assert [one.repaired for one in first.findings] == [True]
    assert await fsck_recheck(bench.context, request) == first
    assert not (await fsck_recheck(bench.context, pb.FsckRecheckRequest(subjects=subjects))).findings


async def test_limits(bench: MetaBench) -> None:
    with pytest.raises(InvalidArgument, match="a call checks at most"):
        subjects = [pb.FsckSubject(inode=1)] * (MAX_SUBJECTS + 1)
        await fsck_recheck(bench.context, pb.FsckRecheckRequest(subjects=subjects))
    with pytest.raises(InvalidArgument, match="names"):
        subjects = [pb.FsckSubject(inode=1, names=[pb.FsckName()] * (MAX_NAMES + 1))]
        await fsck_recheck(bench.context, pb.FsckRecheckRequest(subjects=subjects))
