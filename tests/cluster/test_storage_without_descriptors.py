"""A target of a process without descriptors or memory leaves its chain, and comes back after a while."""

import asyncio
import errno
import math
import os
from pathlib import Path
from typing import Any

import pytest
from threefs_storage.health import target_recovery

from tests.harness.chain_harness import LASTSRV, OFFLINE, SERVING, SYNCING, chain_of, until
from threefs.backoff import Backoff
from threefs.errors import Unavailable
from threefs.routing import LocalState


@pytest.mark.parametrize("is_needed", [False, True])
async def test_one_without_descriptors_returns_after_a_while_or_when_it_is_needed(
    is_needed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its disk was taken for full: what it had in quarantine was deleted, and the store opened again twice a second."""
    monkeypatch.setattr(target_recovery, "_AWAY", Backoff(1e9, 1e9))
    async with chain_of(tmp_path, 2) as chain:
        target, recovery = chain[2].target, chain[2].storage._target_recovery
        recovery._returns[target.target_id] = 5, -math.inf  # long ago
        engine, stage = target.engine, target.engine.stage
        kept = engine._directory.with_name(f"{engine._directory.name}.damaged")
        kept.mkdir()

        async def exhausted(*_: Any, **more: Any) -> None:
            raise Unavailable(f"/s/target-201/blocks/128KiB.blocks: {os.strerror(errno.EMFILE)}")

        engine.stage = exhausted  # type: ignore[method-assign, assignment]
        write = asyncio.create_task(chain.write(b"x" * 70_000))
        await until(lambda: target.leaving)
        chain.change((1, SERVING), (2, OFFLINE))
        assert (await write).version == 1
        engine.stage = stage  # type: ignore[method-assign]
        await asyncio.sleep(2 * target_recovery._INTERVAL_S)
        assert target.local_state is LocalState.OFFLINE
        if is_needed:
            chain.change((1, OFFLINE), (2, LASTSRV))
        else:
            recovery._returns[target.target_id] = 0, -math.inf
        await until(lambda: target.local_state is LocalState.ONLINE)
        assert target.engine is engine and kept.is_dir() and not chain[2].targets.reports()[0].failure


async def test_one_without_descriptors_returns_soon_where_its_chain_takes_no_writes_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target_recovery, "_AWAY", Backoff(1e9, 1e9))
    monkeypatch.setattr(target_recovery, "_AWAY_FROM_WRITES", Backoff(0.5, 0.5))
    async with chain_of(tmp_path, 2) as chain:
        target = chain[2].target
        chain[2].storage._target_recovery.on_exhausted(target)
        chain.change((1, SERVING), (2, OFFLINE))
        await asyncio.sleep(1.0 + 2 * target_recovery._INTERVAL_S)
        assert target.local_state is LocalState.OFFLINE
        target.min_replicas = 2
        await until(lambda: target.local_state is LocalState.ONLINE)


@pytest.mark.parametrize("is_needed", [False, True])
async def test_a_store_without_descriptors_and_room_is_opened_again_when_there_are_some(
    is_needed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store was closed when there was room, found no descriptors, and stayed closed until the process ended."""
    monkeypatch.setattr(target_recovery, "_AWAY", Backoff(0.1, 0.1))
    async with chain_of(tmp_path, 2) as chain:
        await chain.write(b"before")
        target, targets = chain[2].target, chain[2].targets
        await target.engine._ballast.release()
        target.engine._ballast._length_bytes = 1 << 20  # others had filled the disk
        assert target.engine.read_only is not None
        opening, tries = targets._open_engine, list[Path]()

        async def exhausted(directory: Path) -> Any:
            tries.append(directory)
            raise Unavailable(f"{directory}: {os.strerror(errno.EMFILE)}")

        targets._open_engine = exhausted  # type: ignore[method-assign]
        chain[2].storage._target_recovery.on_exhausted(target)
        chain.change((1, SERVING), (2, OFFLINE))
        await until(lambda: bool(tries) and target.is_closed)
        targets._open_engine = opening  # type: ignore[method-assign]
        if is_needed:
            chain.change((1, OFFLINE), (2, LASTSRV))
        await until(lambda: target.local_state is LocalState.ONLINE)
        assert not target.is_closed


@pytest.mark.parametrize("is_needed", [False, True])
async def test_a_table_that_has_found_no_descriptor_is_opened_again(
    is_needed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It refuses all work from then on. The target stayed out of its chain until the process was started again."""
    monkeypatch.setattr(target_recovery, "_INTERVAL_S", 0.05)
    monkeypatch.setattr(target_recovery, "_AWAY", Backoff(0.1, 0.1))
    monkeypatch.setattr(target_recovery, "_ALONE_S", 0.1)
    async with chain_of(tmp_path, 2) as chain:
        await chain.write(b"before")
        target, targets = chain[2].target, chain[2].targets
        await until(lambda: not target.engine.pending_chunks)
        table: Any = target.engine._store._table
        store = table._store

        class Refusing:
            """A store that turns to a new log, and cannot open it."""

            def __getattr__(self, name: str) -> Any:
                return getattr(store, name)

            def write(self, *_: Any) -> None:
                raise OSError(f"IO error: While open a file for appending: /s/7.log: {os.strerror(errno.EMFILE)}")

        table._store = Refusing()
        opening, tries = targets._open_engine, list[Path]()

        async def exhausted(directory: Path) -> Any:
            tries.append(directory)
            if len(tries) < 3:
                raise Unavailable(f"{directory}: {os.strerror(errno.EMFILE)}")
            return await opening(directory)

        targets._open_engine = exhausted  # type: ignore[method-assign]
        write = asyncio.create_task(chain.write(b"later!"))
        await until(lambda: target.leaving)
        assert not targets._failed_disks
        chain.change((1, SERVING), (2, OFFLINE))
        assert (await write).version == 2
        if is_needed:
            chain[1].target.leave()
            chain.change((1, LASTSRV), (2, LASTSRV))
        await until(lambda: target.local_state is LocalState.ONLINE)
        assert len(tries) == 3 and not targets.reports()[0].failure
        if not is_needed:
            target.leased_until = math.inf
            chain.change((1, SERVING), (2, SYNCING))
            await until(lambda: target.synced_in_version == chain.version)
            chain.change((1, SERVING), (2, SERVING))
            assert await chain.read(2) == (2, b"later!")
