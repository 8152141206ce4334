import asyncio

import pytest

from threefs.errors import TooLarge
from threefs.kv.engine_api import Transaction
from threefs.kv.memory import MemoryEngine


async def test_a_transaction_ends_with_its_commit() -> None:
    tx = MemoryEngine().begin()
    tx.set(b"a", b"1")
    await tx.commit()
    with pytest.raises(AssertionError, match="has ended"):
        await tx.get(b"a")
    with pytest.raises(AssertionError, match="has ended"):
        tx.set(b"a", b"2")


def test_conflict_keys_count_towards_the_size_of_a_writing_transaction() -> None:
    async def main(writes: bool) -> None:
        tx = MemoryEngine().begin()
        for number in range(110):
            tx.add_read_conflict(b"%d" % number + b"k" * 9990)
        if writes:
            tx.set(b"a", b"1")
        await tx.commit()

    asyncio.run(main(writes=False))
    with pytest.raises(TooLarge):
        asyncio.run(main(writes=True))


async def test_reads_of_own_writes_depend_on_no_service() -> None:
    engine = MemoryEngine()
    tx, other = engine.begin(), engine.begin()
    tx.set(b"a", b"1")
    assert await tx.get(b"a") == b"1"
    other.set(b"a", b"2")
    await other.commit()
    await tx.commit()
    assert await engine.begin().get(b"a") == b"1"


def test_the_port_describes_it() -> None:
    tx: Transaction = MemoryEngine().begin()
    assert tx is not None
