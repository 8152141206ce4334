from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from threefs_client.data import read_plans
from threefs_client.data.read_plans import Hole, Piece, ReadPlan
from threefs_client.data.replica_selector import ReplicaEndpoint, ReplicaSelector

from tests.harness.memory_storage import make_routing
from threefs.checksums import crc32c
from threefs.errors import ChunkNotFound, CorruptChunk, ProtocolError
from threefs.ids import TableId
from threefs.layout import FileLayout
from threefs.wire import storage_pb2 as pb

KIB = 1 << 10
LAYOUT = FileLayout(64 * KIB, TableId(1), stripe=1)


def planned(rows: list[tuple[str, int, int]], length: int = 640 * KIB, **limits: int) -> list[ReadPlan] | None:
    selector = ReplicaSelector(make_routing())
    bounds = {"request_bytes": 1 << 20, "request_rows": 1000, **limits}
    plans = read_plans.plan_rows(rows, {"f": (selector.resolve(7, LAYOUT), length)}, **bounds)
    assert all(endpoint.open_plan is None for endpoint in selector._endpoints.values())
    if plans is None:
        assert all(endpoint.load == 0 for endpoint in selector._endpoints.values())
    return plans


@pytest.mark.parametrize("row", [("f", -1, 1), ("f", 0, 0), ("f", 0, -5), ("f", 640 * KIB, 1), ("f", 64 * KIB - 1, 2)])
def test_rows_that_need_care_are_not_planned(row: tuple[str, int, int]) -> None:
    assert planned([("f", 0, 10), row]) is None


def test_an_answer_that_has_not_begun_makes_progress_only_by_its_grant() -> None:
    plan = ReadPlan(ReplicaEndpoint("storage:1"))
    plan.rows, plan.size = [(101, 1, 7, 0, 0, 10, 0)], 10
    assert plan.progress(1) == plan.progress(2), "these are frames of other answers"
    assert not plan.awaits_grant
    plan.announced = announced = SimpleNamespace(is_waiting=True, is_granted=False)  # type: ignore[assignment]
    assert plan.awaits_grant
    before = plan.progress(2)
    announced.is_waiting, announced.is_granted = False, True
    assert not plan.awaits_grant and plan.progress(2) != before
    plan.sink(pb.ReadReply(length=[10]), 10)
    assert plan.progress(2) != plan.progress(3)


def test_a_plan_may_be_left_when_one_of_its_rows_may_be_read_elsewhere() -> None:
    selector = ReplicaSelector(make_routing())
    plan = ReadPlan(ReplicaEndpoint("storage:1"))
    plan.rows = [(101, 1, 7, number, 0, 10, number) for number in range(2)]
    assert plan.may_be_left(selector), "this is the first attempt"
    file: Any = SimpleNamespace()
    plan.pieces = [Piece(file, number, 0, 10, memoryview(bytearray(10))) for number in range(2)]
    plan.pieces[0].silent = {201: 1, 301: 1}
    assert plan.may_be_left(selector)
    plan.pieces[1].silent, plan.pieces[1].damaged = {201: 1}, {301}
    assert not plan.may_be_left(selector)
    assert plan.patience == 1
    plan.pieces[1].silent[101] = 2
    assert plan.patience == 4
    plan.pieces[1].silent[101] = 2000
    assert plan.patience * 10.0 > 1e5, "many short attempts have not been answered: a number, and no OverflowError"


def test_a_row_of_nonsense_leaves_nothing_behind() -> None:
    with pytest.raises(TypeError):
        planned([("f", 0, 10), ("f", "x", 1)])  # type: ignore[list-item]
    with pytest.raises(KeyError):
        planned([("f", 0, 10), ("g", 0, 1)])


def test_a_row_on_a_chain_that_is_not_served_is_not_planned() -> None:
    routing = make_routing(chains=1)
    (chain,) = routing.chains.values()
    out = replace(routing, chains={chain.chain_id: replace(chain, members=())})
    file = ReplicaSelector(out).resolve(7, LAYOUT), 640 * KIB
    assert read_plans.plan_rows([("f", 0, 10)], {"f": file}, request_bytes=1 << 20, request_rows=1000) is None


def test_plans_are_cut_at_the_limits() -> None:
    rows = [("f", number * 100, 100) for number in range(90)]
    plans = planned(rows, request_rows=10)
    assert plans is not None
    assert [len(plan.rows) for plan in plans] == [10] * 9
    plans = planned(rows, request_bytes=1000)
    assert plans is not None
    assert {plan.size for plan in plans} == {1000}
    request = plans[0].request()
    assert list(request.length) == [100] * 10
    assert set(request.inode) == {7}


def answered(
    lengths: list[int], sizes: list[int], codes: list[int] | None = None, *, damage: int = -1, own: bool = True
) -> tuple[list[Any], list[Any], bytes]:
    """Settle one plan of rows of `lengths` that is answered with rows of `sizes`."""
    selector = ReplicaSelector(make_routing())
    plan = ReadPlan(selector.resolve(7, LAYOUT)[4][0][0][0])
    plan.rows = [(101, 1, 7, 0, 0, length, index) for index, length in enumerate(lengths)]
    plan.size = sum(lengths)
    if not own:
        plan.destinations = [memoryview(bytearray(b"?" * length)) for length in lengths]
    parts = [bytes([index + 1]) * size for index, size in enumerate(sizes)]
    payload = b"".join(parts)
    reply = pb.ReadReply(
        code=codes or [0] * len(sizes),
        length=sizes,
        checksum=[crc32c(part) for part in parts],
        version=[1] * len(sizes),
    )
    if payload:
        at = 0
        views = plan.sink(reply, len(payload))
        assert sum(len(view) for view in views) == len(payload)
        for view in views:
            view[:] = payload[at : at + len(view)]
            at += len(view)
    if damage >= 0:
        place = plan.places()[damage]
        place[0] ^= 1
    results: list[Any] = [None] * len(lengths)
    failed = read_plans.settle(plan, reply, results, verify=True)
    return results, [(row[6], type(error)) for row, error in failed], payload


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("lengths", [[5], [4 * KIB] * 20, [10, 20, 30], [512] * 8, [1000] * 9])
def test_whole_answers(lengths: list[int], own: bool) -> None:
    results, failed, payload = answered(lengths, lengths, own=own)
    assert not failed
    assert b"".join(bytes(view) for view in results) == payload


@pytest.mark.parametrize("lengths", [[5], [4 * KIB] * 20, [10, 20, 30]])
@pytest.mark.parametrize("own", [True, False])
def test_one_damaged_row_is_found_and_the_others_are_good(lengths: list[int], own: bool) -> None:
    _, failed, _ = answered(lengths, lengths, damage=len(lengths) - 1, own=own)
    assert [index for index, _ in failed] == [len(lengths) - 1]


@pytest.mark.parametrize("own", [True, False])
def test_short_and_missing_rows_are_filled_with_zeros(own: bool) -> None:
    results, failed, _ = answered([10, 10, 10, 10], [10, 4, 0, 0], [0, 0, ChunkNotFound.code, 0], own=own)
    assert not failed
    assert bytes(results[0]) == b"\x01" * 10
    assert all(type(result) is Hole for result in results[1:])
    assert bytes(results[1].place) == b"\x02" * 4 + bytes(6)
    assert bytes(results[2].place) == bytes(results[3].place) == bytes(10)
    assert [result.stored for result in results[1:]] == [4, 0, 0]


@pytest.mark.parametrize(
    ("lengths", "sizes"), [([10, 10], [11, 9]), ([10, 10], [20, 1]), ([10], [10, 10]), ([10, 10], [10])]
)
def test_answers_that_do_not_fit_are_refused(lengths: list[int], sizes: list[int]) -> None:
    with pytest.raises(ProtocolError):
        answered(lengths, sizes)


def test_what_a_target_could_not_read_is_said_with_its_reason() -> None:
    plan = ReadPlan(ReplicaSelector(make_routing()).resolve(7, LAYOUT)[4][0][0][0])
    plan.rows = [(101, 1, 7, 3, 0, 5, 0)]
    reply = pb.ReadReply(code=[CorruptChunk.code], length=[0], checksum=[0], version=[1])
    ((_, error),) = read_plans.settle(plan, reply, [None], verify=True)
    where = f"at target 101 of the storage process {plan.endpoint.address}"
    assert str(error) == f"The stored bytes do not match their checksum: chunk 3 of inode 7, {where}"


def test_own_buffers_are_one_piece() -> None:
    results, _, _ = answered([4 * KIB] * 3, [4 * KIB] * 3)
    assert len({np.frombuffer(view.obj, np.uint8).ctypes.data for view in results}) == 1
