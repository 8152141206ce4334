import dataclasses
from pathlib import Path

from structlog.testing import capture_logs
from threefs_storage.chain import kept_version

from tests.harness.chain_harness import CHAIN, OFFLINE, SERVING, chain_of
from threefs import routing as routing_module
from threefs.errors import NoSpace
from threefs.ids import ChainId
from threefs.routing import Chain, Routing


async def test_a_store_keeps_the_newest_version_of_its_chain_with_the_stores_of_its_members(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        engine, old = chain[1].target.engine, chain.routing()
        assert kept_version.load(engine) is None and chain[1].targets.stores()[0].HasField("kept") is False
        await chain[1].targets.keep_chains(old)
        new = chain.change((2, SERVING), (1, OFFLINE))
        await chain[1].targets.keep_chains(new)
        await chain[1].targets.keep_chains(old)
        (store,) = chain[1].targets.stores()
        assert store.kept.chain == routing_module.chain_to_wire(new.chains[CHAIN])
        assert [target.target_id for target in store.kept.targets] == [201, 101]


async def test_a_new_store_keeps_nothing_while_the_routing_names_another_one(tmp_path: Path) -> None:
    """A restored manager would take it for the store that is gone, and its own version for what that one knew."""
    async with chain_of(tmp_path, 1) as chain:
        engine, known = chain[1].target.engine, chain.routing()
        target_id = chain[1].target.target_id

        def of_store(store_id: int) -> Routing:
            named = dataclasses.replace(known.targets[target_id], store_id=store_id)
            return dataclasses.replace(known, targets={target_id: named})

        await chain[1].targets.keep_chains(of_store(engine.store_id + 1))
        assert kept_version.load(engine) is None
        await chain[1].targets.keep_chains(of_store(engine.store_id))
        assert kept_version.load(engine) is not None, "it is filled now"


async def test_what_is_kept_survives_and_is_what_a_target_begins_with(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        old = chain.routing()
        await chain[2].targets.keep_chains(chain.change((1, SERVING), (2, OFFLINE)))
        await chain[2].restart(old)  # a manager that was restored knows no better
        assert chain[2].target.chain.version == 2 and not chain[2].target.serving
        assert kept_version.newest(chain[2].target.engine, Chain(ChainId(9), 1, ())).chain_id == 9, "another one's"


async def test_a_target_that_has_left_keeps_nothing_more(tmp_path: Path) -> None:
    """Its store may be closed, to be opened anew; before it serves again it hears of another version."""
    async with chain_of(tmp_path, 2) as chain:
        chain[2].target.leave()
        await chain[2].targets.keep_chains(chain.routing())
        assert kept_version.load(chain[2].target.engine) is None


async def test_where_there_is_no_room_or_it_cannot_be_read_the_target_goes_on(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 1) as chain:
        engine = chain[1].target.engine

        async def refuse(name: str, value: bytes) -> None:
            raise NoSpace("full")

        keep, engine.keep_note = engine.keep_note, refuse
        with capture_logs() as logs:
            await chain[1].targets.keep_chains(chain.routing())
        assert [entry["event"] for entry in logs if "chain" in entry["event"]] == ["a chain version cannot be stored"]
        await keep("chain", b"damage")
        with capture_logs() as logs:
            assert kept_version.load(engine) is None
        assert [entry["event"] for entry in logs if "chain" in entry["event"]] == [
            "the stored version of a chain cannot be read"
        ]
        engine.keep_note = keep
        await chain[1].targets.keep_chains(chain.routing())
        assert kept_version.load(engine) is not None
