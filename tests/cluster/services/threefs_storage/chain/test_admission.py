"""Which requests a target takes."""

import math
from pathlib import Path

import pytest
from threefs_storage.chain import admission

from tests.harness.chain_harness import OFFLINE, SERVING, SYNCING, chain_of
from threefs.errors import ChainChanged, NotServing, TooFewReplicas
from threefs.wire import storage_pb2 as pb


async def test_each_request_has_its_place_in_the_chain(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        chain.change((1, SERVING), (2, SERVING), (3, SYNCING))
        head, tail, syncing = (chain[node].target for node in (1, 2, 3))
        admission.check(head, 2)
        admission.check(syncing, 2, syncing=True)
        with pytest.raises(NotServing):
            admission.check(syncing, 2)
        for check, right in (
            (admission.check_head, head),
            (admission.check_tail, tail),
            (admission.check_last, syncing),
        ):
            check(right)
            for wrong in {head, tail, syncing} - {right}:
                with pytest.raises(NotServing):
                    check(wrong)


async def test_a_request_names_the_chain_version_of_a_member(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        chain.change((1, SERVING), (2, SERVING), (3, SYNCING))
        head, tail = chain[1].target, chain[2].target
        for version in (1, 3):
            with pytest.raises(ChainChanged):
                admission.check(head, version)
        chain.change((1, SERVING), (2, OFFLINE), (3, OFFLINE))
        with pytest.raises(NotServing, match="OFFLINE"):
            admission.check(tail, 3, syncing=True)
        chain.change((1, SERVING))
        with pytest.raises(NotServing, match="not in its chain"):
            admission.check(tail, 4, syncing=True)


async def test_a_target_without_a_lease_takes_nothing(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        head = chain[1].target
        admission.check(head, 1)
        head.leased_until = -math.inf
        with pytest.raises(NotServing, match="no lease"):
            admission.check(head, 1)


async def test_only_writes_of_clients_need_the_minimum_of_replicas(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        head, tail = chain[1].target, chain[2].target
        head.min_replicas = tail.min_replicas = 2
        admission.check_write(head, pb.ChunkWrite(chain_version=1))
        head.min_replicas = tail.min_replicas = 3
        with pytest.raises(TooFewReplicas, match="has 2 of 2 copies, and at least 3 are needed"):
            admission.check_write(head, pb.ChunkWrite(chain_version=1))
        admission.check_write(tail, pb.ChunkWrite(chain_version=1, version=7))


async def test_a_change_comes_ahead_only_from_a_predecessor(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        chain.change((1, SERVING), (2, SERVING), (3, SYNCING))
        write = pb.ChunkWrite(chain_version=2, version=1)
        admission.check_ahead(chain[2].target, write)
        for node in (1, 3):
            with pytest.raises(NotServing):
                admission.check_ahead(chain[node].target, write)
        with pytest.raises(ChainChanged):
            admission.check_ahead(chain[2].target, pb.ChunkWrite(chain_version=1, version=1))
