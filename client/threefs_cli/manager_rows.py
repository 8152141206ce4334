"""The managers of a cluster, as `threefs status` shows them: which is primary, which stand by, which do not answer."""

import asyncio
from collections.abc import Mapping
from typing import Any

from threefs.cluster.manager_client import Caller
from threefs.errors import Fenced, NotPrimary, ThreefsError
from threefs.rpc.methods import GET_STATUS
from threefs.wire import manager_pb2 as pb

#: For those that stand by, or are silent. The primary has more time, because the state of a large cluster is large.
_STANDBY_S = 2.0
_PRIMARY_S = 10.0

Answer = pb.GetStatusReply | ThreefsError | None  # None: not yet


async def ask(callers: Mapping[str, Caller]) -> tuple[pb.GetStatusReply, list[dict[str, Any]]]:
    """The state of the cluster, as its primary knows it, and a row for each manager. `callers` is by address.

    Raises the error of a manager if none is primary.
    """
    tasks = {address: asyncio.create_task(_answer(caller)) for address, caller in callers.items()}
    try:
        await asyncio.wait(tasks.values(), timeout=_STANDBY_S)
        if not any(task.done() and isinstance(task.result(), pb.GetStatusReply) for task in tasks.values()):
            await asyncio.wait(tasks.values(), timeout=_PRIMARY_S)
        answers: dict[str, Answer] = {address: t.result() if t.done() else None for address, t in tasks.items()}
    finally:
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
    replies = [answer for answer in answers.values() if isinstance(answer, pb.GetStatusReply)]
    if not replies:
        errors = [answer for answer in answers.values() if isinstance(answer, ThreefsError)]
        # One that answers says more than one that does not.
        raise next((error for error in errors if isinstance(error, NotPrimary)), errors[0])
    newest = max(replies, key=lambda reply: reply.manager_epoch)
    return newest, [_row(address, answer, newest) for address, answer in answers.items()]


async def _answer(caller: Caller) -> pb.GetStatusReply | ThreefsError:
    try:
        return await caller.call(GET_STATUS, pb.GetStatusRequest(), timeout_s=_PRIMARY_S)
    except ThreefsError as error:
        return error


def _row(address: str, answer: Answer, newest: pb.GetStatusReply) -> dict[str, Any]:
    if answer is newest:
        return {"address": address, "role": "primary", "alive": True, "error": None}
    # One that has just lost its lease stands by.
    if isinstance(answer, (NotPrimary, Fenced, pb.GetStatusReply)):
        return {"address": address, "role": "standby", "alive": True, "error": None}
    error = f"it has not answered for {_STANDBY_S:.0f} s" if answer is None else str(answer)
    return {"address": address, "role": None, "alive": False, "error": error}


def line(row: dict[str, Any]) -> str:
    """For people."""
    if not row["alive"]:
        return f"manager {row['address']} does not answer: {row['error']}"
    return f"manager {row['address']} " + ("is primary" if row["role"] == "primary" else "stands by")
