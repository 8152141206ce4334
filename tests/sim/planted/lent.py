"""What machines lend to processes: room that a disk only says that it has, memory, and time to run."""

import asyncio
from typing import Any

from threefs_manager.chains.controller import ChainController
from threefs_storage.engine.ballast import Ballast
from threefs_storage.engine.engine import ChunkEngine
from threefs_storage.health.target_recovery import TargetRecovery
from threefs_storage.target import Target

from tests.sim.planted.registry import plant, plant_for, put
from threefs.rpc.server_connection import ServerConnection

_DISKS = "sim/test_strange_disks.py"
_MEMORY = "sim/test_scarce_memory.py"
_ASLEEP = "sim/test_managers_asleep.py"


@plant_for(f"{_DISKS}::test_writes_go_on_while_a_disk_refuses_them_although_it_says_that_it_has_room[scant-s1]")
def quota_is_believed() -> None:
    """A head whose disk refuses writes, and says that it has room, does not give way."""
    put(Target, "note_refusal", lambda self: None)


@plant_for(f"{_DISKS}::test_a_disk_that_says_nothing_has_failed[s1]")
def disk_that_says_nothing_has_not_failed() -> None:
    """Its process sends no heartbeats, so its targets are out only after T."""

    def space(self: ChunkEngine) -> Any:
        return self._files.space(self._store.blob_bytes, self._chunks)

    put(ChunkEngine, "space", space)


@plant_for(f"{_MEMORY}::test_calls_without_memory_leave_nothing_behind")
def call_without_memory_is_counted() -> None:
    """I20: a call for which there is no memory looks complete, and counts for ever."""
    request = ServerConnection._request

    def counted(self: ServerConnection, *arguments: Any) -> Any:
        try:
            return request(self, *arguments)
        except OSError:
            self._count(1)
            raise

    put(ServerConnection, "_request", counted)


@plant_for(f"{_ASLEEP}::test_r9_a_silence_while_the_manager_was_suspended_in_a_transaction_says_nothing")
def suspension_in_a_transaction_is_not_noticed() -> None:
    """R9: living targets are put out for the silence of a time in which the manager did not run."""
    evaluate = ChainController._evaluate

    async def no_ticks(self: ChainController) -> None:
        await asyncio.Event().wait()

    async def as_before(self: ChainController, dirty: Any) -> None:
        await evaluate(self, dirty)
        self._ticked_at = self._clock.monotonic()

    put(ChainController, "_tick", no_ticks)
    put(ChainController, "_evaluate", as_before)


@plant
def full_target_never_returns_without_room() -> None:
    """Outside its chain it hears of no removal, so its disk stays full for ever."""
    put(TargetRecovery, "_may_look", lambda self, target: False)


@plant
def target_returns_though_its_disk_takes_nothing() -> None:
    """It is brought up to date, refuses, and leaves, for as long as the disk only says that it has room."""

    async def takes(self: Ballast, length: int) -> bool:
        return True

    put(Ballast, "takes", takes)
