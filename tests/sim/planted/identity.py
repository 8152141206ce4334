"""Stores that are not that of the cluster are taken for it (I15)."""

from typing import Any

from threefs_manager import metadata_store
from threefs_manager.older import Age
from threefs_meta import store_identity

from tests.sim.planted.registry import plant, put
from threefs.wire import manager_pb2 as pb


@plant
def older_copy_of_the_managers_store_is_served() -> None:
    def confirmed(self: Age, request: Any) -> None:
        self.confirmed = True

    put(Age, "check", confirmed)


@plant
def any_metadata_store_is_admitted() -> None:
    def judged(known: pb.MetadataStore, cluster_id: str, request: pb.AdmitStoreRequest) -> pb.MetadataStore:
        return pb.MetadataStore(store_id=request.store_id, epoch=request.epoch, generation=request.generation)

    put(metadata_store, "judge", judged)


@plant
def restored_store_goes_on_with_its_inode_numbers() -> None:
    put(store_identity, "EPOCH_BITS", 0)
