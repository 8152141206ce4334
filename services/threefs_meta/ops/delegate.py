"""Claim a directory: from now on names come into it by this client alone, until somebody recalls it."""

from threefs.rpc import methods
from threefs.wire import meta_pb2 as pb
from threefs_meta.context import Context
from threefs_meta.lease import delegation
from threefs_meta.store.namespace import Namespace
from threefs_meta.transactions import run_mutation


async def delegate(context: Context, request: pb.DelegateRequest) -> pb.DelegateReply:
    """Asked again, it says no: the claim of the first answer may have been recalled since."""
    mutation = request.mutation

    async def work(ns: Namespace) -> pb.DelegateReply:
        await ns.directory(request.directory)
        inode = await ns.require_inode(request.directory)
        client, number = mutation.client, mutation.request
        if delegation.may_grant(inode.delegation, client, number, ns.stamp) and not inode.trash:
            inode.delegation.CopyFrom(delegation.granted(client, number, request.oldest))
            ns.put_inode_unseen(inode)
            ns.delegation_number = number
        return pb.DelegateReply()

    return await run_mutation(context, methods.DELEGATE, mutation, work)
