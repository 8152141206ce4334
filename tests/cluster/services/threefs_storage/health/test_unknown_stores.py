"""A store that a manager did not know, by an engine on a real disk."""

from pathlib import Path

from structlog.testing import capture_logs
from threefs_storage.health import unknown_stores

from tests.harness.chain_harness import chain_of
from threefs.errors import Corrupt, NoSpace


async def test_a_mark_stays_until_it_is_removed(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 1) as chain:
        assert not unknown_stores.is_marked(chain[1].target.engine)
        for _ in range(2):
            await unknown_stores.mark(chain[1].target.engine)
        await chain[1].restart(chain.routing())
        assert unknown_stores.is_marked(chain[1].target.engine) and chain[1].target.was_unknown
        unknown_stores.unmark(chain[1].target.engine)
        assert not unknown_stores.is_marked(chain[1].target.engine)


async def test_a_store_that_takes_or_tells_nothing_is_treated_with_care(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 1) as chain:
        engine = chain[1].target.engine

        async def refuse(name: str, value: bytes) -> None:
            raise NoSpace("full")

        def refuse_at_once(name: str, value: bytes | None) -> None:
            raise NoSpace("full")

        def damaged(name: str) -> bytes | None:
            raise Corrupt("damaged")

        engine.keep_note, engine.put_note = refuse, refuse_at_once
        with capture_logs() as logs:
            await unknown_stores.mark(engine)
            unknown_stores.unmark(engine)
        assert [entry["event"] for entry in logs if "store" in entry["event"]] == [
            "a store that the manager does not know cannot be marked",
            "the mark of a store cannot be removed",
        ]
        read, engine.note = engine.note, damaged
        assert unknown_stores.is_marked(engine), "it is not deleted"
        engine.note = read
