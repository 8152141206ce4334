"""Grant a client the delegation of a directory, and take it back: in between only this client adds names there."""

from threefs.errors import InvalidArgument
from threefs.kv.engine_api import Transaction
from threefs.rpc import methods
from threefs.wire import meta_pb2 as pb
from threefs_meta.context import Context
from threefs_meta.lease import delegation
from threefs_meta.store.namespace import Namespace
from threefs_meta.transactions import run_mutation

MAX_DELEGATIONS = 256


async def delegate(context: Context, request: pb.DelegateRequest) -> pb.DelegateReply:
    """A repeated request gets no delegation: that of the first answer may have been recalled since."""
    mutation = request.mutation

    async def work(ns: Namespace) -> pb.DelegateReply:
        await ns.directory(request.directory)
        inode = await ns.require_inode(request.directory)
        client, number = mutation.client, mutation.request
        if delegation.may_grant(inode.delegation, client, number, ns.stamp) and not inode.trash:
            assert inode.type == pb.DIRECTORY, "only a directory is delegated"
            inode.delegation.CopyFrom(delegation.granted(client, number, request.oldest))
            ns.put_inode_unseen(inode)
            ns.put_delegation_reply(request.directory, granted=number)
        return pb.DelegateReply()

    return await run_mutation(context, methods.DELEGATE, mutation, work)


async def return_delegation(context: Context, request: pb.ReturnDelegationRequest) -> pb.ReturnDelegationReply:
    if len(request.directories) > MAX_DELEGATIONS or len(request.directories) != len(request.numbers):
        raise InvalidArgument(
            f"a call returns at most {MAX_DELEGATIONS} delegations, each with its number; "
            f"not {len(request.directories)} directories and {len(request.numbers)} numbers"
        )

    async def attempt(tx: Transaction) -> pb.ReturnDelegationReply:
        ns = context.namespace(tx)
        for directory, number in zip(request.directories, request.numbers, strict=True):
            inode = await ns.inode(directory)
            if inode is not None and delegation.is_same(inode.delegation, request.client, number):
                delegation.clear(inode)
                ns.put_inode_unseen(inode)
        return pb.ReturnDelegationReply()

    return await context.transact(attempt)
