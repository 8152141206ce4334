"""Check suspects of `threefs fsck` again in one transaction, and on request repair them in the same transaction."""

import asyncio

from threefs.errors import AlreadyExists, InvalidArgument, NotADirectory
from threefs.rpc import methods
from threefs.wire import meta_pb2 as pb
from threefs_meta.context import Context
from threefs_meta.fsck.checks import Problem, check_subject
from threefs_meta.fsck.repair import repair
from threefs_meta.store.namespace import Namespace
from threefs_meta.transactions import NeedsChunkIo, run_mutation, run_readonly

MAX_SUBJECTS = 256
MAX_NAMES = 70_000  # more than any file may have


async def fsck_recheck(context: Context, request: pb.FsckRecheckRequest) -> pb.FsckRecheckReply:
    if len(request.subjects) > MAX_SUBJECTS:
        raise InvalidArgument(f"a call checks at most {MAX_SUBJECTS} suspects, not {len(request.subjects)}")
    if sum(len(subject.names) for subject in request.subjects) > MAX_NAMES:
        raise InvalidArgument(f"a call checks at most {MAX_NAMES} names")

    async def work(ns: Namespace) -> pb.FsckRecheckReply | NeedsChunkIo:
        reply = pb.FsckRecheckReply()
        for number, subject in enumerate(request.subjects):
            for problem in await check_subject(ns, subject):
                await _add_finding(context, ns, request, reply, number, problem)
            await asyncio.sleep(0)  # let other calls run
        return reply

    if request.repair:
        return await run_mutation(context, methods.FSCK_RECHECK, request.mutation, work)
    found = await run_readonly(context, work)
    assert isinstance(found, pb.FsckRecheckReply), "a check needs no chunks"
    return found


async def _add_finding(
    context: Context,
    ns: Namespace,
    request: pb.FsckRecheckRequest,
    reply: pb.FsckRecheckReply,
    number: int,
    problem: Problem,
) -> None:
    finding = reply.findings.add(
        kind=problem.kind,
        inode=problem.inode,
        parent=problem.parent,
        name=problem.name,
        detail=problem.detail,
        subject=number,
    )
    if request.repair:
        try:
            finding.repaired = await repair(context, ns, problem)
        except (NotADirectory, AlreadyExists) as error:
            finding.detail += f"; {error}"
