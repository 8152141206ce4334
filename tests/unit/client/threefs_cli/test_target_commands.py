"""A target is out of service when nobody uses it, and nobody may need it."""

import pytest
from threefs_cli.cluster_state import ClusterState
from threefs_cli.target_commands import _inside

from threefs.wire import manager_pb2 as pb


@pytest.mark.parametrize(
    ("state", "leaves", "forced"),
    [
        (pb.SERVING, [201], [201]),
        (pb.SYNCING, [201], [201]),
        (pb.LASTSRV, [201], []),  # the other copies were lost before it could leave
        (pb.WAITING, [], []),
        (pb.OFFLINE, [], []),
    ],
)
def test_the_last_copy_of_a_chain_is_not_out_of_service_unless_that_is_forced(
    state: "pb.PublicState", leaves: list[int], forced: list[int]
) -> None:
    chain = pb.Chain(chain_id=1, members=[pb.ChainMember(target_id=201, state=state)])
    known = ClusterState(pb.GetStatusReply(chains=[chain]), pb.Routing())
    assert _inside(known, [201], pb.HOLD_OFFLINE) == leaves
    assert _inside(known, [201], pb.HOLD_FORCED) == forced
