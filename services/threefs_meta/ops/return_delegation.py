"""Claims are given up by their client, which relies on them no more."""

from threefs.errors import InvalidArgument
from threefs.kv import retry
from threefs.kv.engine_api import Transaction
from threefs.wire import meta_pb2 as pb
from threefs_meta.context import Context
from threefs_meta.lease import delegation

MAX_DELEGATIONS = 256


async def return_delegation(context: Context, request: pb.ReturnDelegationRequest) -> pb.ReturnDelegationReply:
    if len(request.directories) > MAX_DELEGATIONS or len(request.directories) != len(request.numbers):
        raise InvalidArgument(f"at most {MAX_DELEGATIONS} directories, with a number each")

    async def attempt(tx: Transaction) -> pb.ReturnDelegationReply:
        ns = context.namespace(tx)
        for directory, number in zip(request.directories, request.numbers, strict=True):
            inode = await ns.inode(directory)
            if inode is not None and delegation.is_same(inode.delegation, request.client, number):
                delegation.clear(inode)
                ns.put_inode_unseen(inode)
        return pb.ReturnDelegationReply()

    return await retry.run(context.engine, attempt, clock=context.clock, random=context.random, replayable=True)
