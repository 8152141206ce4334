import asyncio

import pytest
from threefs_manager.chains.moves import MoveBounds
from threefs_manager.configuration_versions import MAX_VERSIONS, ConfigurationKeeper
from threefs_manager.routing_publisher import RoutingPublisher
from threefs_manager.service import Manager

from tests.harness.manager_bench import Bench, run
from threefs.configuration import KEYS, Role
from threefs.errors import InvalidArgument, NotFound, NotPrimary, Unavailable
from threefs.kv import records
from threefs.wire import manager_pb2 as pb

PLAN = pb.InitRequest(
    storage=[pb.PlannedNode(node_id=number, domain=f"d{number}") for number in (1, 2, 3)],
    replicas=3,
    targets_per_disk=2,
)


def change(known_version: int, number: int = 0, **values: str | None) -> pb.SetConfigurationRequest:
    """`number` tells one call from another."""
    return pb.SetConfigurationRequest(
        known_version=known_version,
        changes=[pb.ConfigurationChange(name=name, value=value) for name, value in values.items()],
        who="me@here",
        message=f"because of {', '.join(values)}",
        call_id=(1000 * known_version + number).to_bytes(16, "big"),
    )


def back(known_version: int, version: int) -> pb.SetConfigurationRequest:
    request = change(known_version, 500)
    request.rollback_version = version
    return request


async def started(manager: Manager) -> ConfigurationKeeper:
    await manager.init(PLAN)
    return manager._configuration


async def texts_of(keeper: ConfigurationKeeper) -> dict[str, str]:
    reply = await keeper.get(pb.GetConfigurationRequest())
    texts = {each.name: each.value for each in reply.configuration.values}
    assert texts == dict(keeper.current.texts) and reply.configuration.version == keeper.current.version
    return texts


def test_each_change_is_a_version_with_its_author_and_reason() -> None:
    async def body(bench: Bench, manager: Manager) -> None:
        keeper = await started(manager)
        assert (await keeper.get(pb.GetConfigurationRequest())).configuration == pb.Configuration()
        reply = await keeper.set(change(0, full_ratio="95%", log_level="debug"))
        assert (reply.before.version, reply.configuration.version) == (0, 1)
        await keeper.set(change(1, log_level=None, scrub_bytes_per_s="1M"))
        assert await texts_of(keeper) == {"full_ratio": "0.95", "scrub_bytes_per_s": "1048576"}
        versions = (await keeper.get(pb.GetConfigurationRequest())).versions
        assert [(one.configuration.version, one.who, one.message) for one in versions] == [
            (1, "me@here", "because of full_ratio, log_level"),
            (2, "me@here", "because of log_level, scrub_bytes_per_s"),
        ]
        assert all(one.configuration.made_ns for one in versions)
        assert manager._publisher.configuration == keeper.current
        assert keeper.applied.word("log_level") == "info" and keeper.applied.report.version == 2

    run(body)


@pytest.mark.parametrize("damaged", [1, 2])
def test_a_damaged_version_keeps_no_manager_from_serving_and_its_number_is_not_given_again(damaged: int) -> None:
    async def body(bench: Bench, manager: Manager) -> None:
        keeper = await started(manager)
        await keeper.set(change(0, log_level="debug"))
        await keeper.set(change(1, log_level="error"))
        tx = bench.engine.begin()
        tx.set(b"CNFG|" + damaged.to_bytes(4, "big"), b"\1damaged")
        await tx.commit()
        again = (await bench.start())._configuration
        assert again.current.version == 3 - damaged
        assert (await again.set(change(3 - damaged, log_level="warning"))).configuration.version == 3
        versions = (await again.get(pb.GetConfigurationRequest())).versions
        assert [one.configuration.version for one in versions] == [3 - damaged, 3]

    run(body)


def test_the_versions_are_there_after_a_restart() -> None:
    async def body(bench: Bench, manager: Manager) -> None:
        keeper = await started(manager)
        await keeper.set(change(0, log_level="debug"))
        again = (await bench.start())._configuration
        assert again.current == keeper.current and again.current.version == 1
        assert (await again.set(change(1, log_level="error"))).configuration.version == 2

    run(body)


def test_a_change_by_somebody_who_has_not_seen_the_newest_version_is_refused() -> None:
    async def body(bench: Bench, manager: Manager) -> None:
        keeper = await started(manager)
        await keeper.set(change(0, log_level="debug"))
        with pytest.raises(InvalidArgument, match=r"at version 1 now, not 0: me@here has changed it .because of log_l"):
            await keeper.set(change(0, 1, full_ratio="0.9"))
        assert await texts_of(keeper) == {"log_level": "debug"}
        results = await asyncio.gather(
            *(keeper.set(change(1, number, deferred_changes=str(number))) for number in (7, 8)), return_exceptions=True
        )
        assert [type(result) for result in results].count(InvalidArgument) == 1
        assert keeper.current.version == 2

    run(body)


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (change(0, scrub_byte_per_s="1M"), "did you mean scrub_bytes_per_s"),
        (change(0, full_ratio="2"), "full_ratio is from 0.5 to 1, not 2"),
        (change(0, log_level="debug", full_ratio="0.8"), "must be below full_ratio"),
        (change(0), "names keys, or a version"),
        (back(0, 0).__class__(known_version=0, call_id=b"short", rollback_version=0), "has 5 bytes, not 16"),
        (
            pb.SetConfigurationRequest(call_id=bytes(16), rollback_version=0, message="x" * 1025),
            "at most 1024, not 1025",
        ),
        (
            pb.SetConfigurationRequest(
                call_id=bytes(16), changes=[pb.ConfigurationChange(name="log_level", value="info")] * 2
            ),
            "names each key once",
        ),
    ],
)
def test_what_is_not_right_is_refused_as_a_whole(request_: pb.SetConfigurationRequest, said: str) -> None:
    async def body(bench: Bench, manager: Manager) -> None:
        keeper = await started(manager)
        for dry_run in (True, False):
            request_.dry_run = dry_run
            with pytest.raises(InvalidArgument, match=said):
                await keeper.set(request_)
        assert keeper.current.version == 0 and await texts_of(keeper) == {}

    run(body)


def test_a_rollback_is_a_new_version_with_old_values() -> None:
    async def body(bench: Bench, manager: Manager) -> None:
        keeper = await started(manager)
        await keeper.set(change(0, log_level="debug"))
        await keeper.set(change(1, log_level="error", full_ratio="0.9"))
        reply = await keeper.set(back(2, 1))
        assert reply.configuration.version == 3 and await texts_of(keeper) == {"log_level": "debug"}
        assert (await keeper.get(pb.GetConfigurationRequest())).versions[-1].rollback_version == 1
        await keeper.set(back(3, 0))
        assert await texts_of(keeper) == {} and keeper.current.version == 4
        for missing in (9, 5):
            with pytest.raises(NotFound, match=f"no version {missing} any more, or never had it: versions 1 to 4 are"):
                await keeper.set(back(4, missing))

    run(body)


def test_what_is_so_already_makes_no_version() -> None:
    async def body(bench: Bench, manager: Manager) -> None:
        keeper = await started(manager)
        await keeper.set(change(0, log_level="debug"))
        for same in (change(1, log_level="debug"), change(1, full_ratio=None), back(1, 1)):
            reply = await keeper.set(same)
            assert reply.before == reply.configuration and reply.configuration.version == 1
        assert keeper.current.version == 1

    run(body)


def test_a_dry_run_stores_nothing_and_says_what_would_be() -> None:
    async def body(bench: Bench, manager: Manager) -> None:
        keeper = await started(manager)
        request = change(0, log_level="debug")
        request.dry_run = True
        reply = await keeper.set(request)
        assert (reply.before.version, reply.configuration.version) == (0, 1)
        assert [each.value for each in reply.configuration.values] == ["debug"]
        assert await texts_of(keeper) == {} and keeper.current.version == 0

    run(body)


async def test_a_repeat_of_a_call_makes_no_second_version() -> None:
    bench = Bench(conflict_rate=0.2, unknown_rate=0.5, seed=7)
    manager = await bench.start()
    keeper = await started(manager)
    for version in range(20):
        reply = await keeper.set(change(version, deferred_changes=str(version + 1)))
        assert (reply.before.version, reply.configuration.version) == (version, version + 1)
    assert await keeper.set(change(19, deferred_changes="20")) == reply, "its answer was lost"
    versions = (await keeper.get(pb.GetConfigurationRequest())).versions
    assert [one.configuration.version for one in versions] == list(range(1, 21))
    await bench.stop()


def test_a_repeat_of_a_call_is_told_of_its_version_although_others_were_made_since() -> None:
    """Its caller has lost the answer, and was told that nothing was changed."""

    async def body(bench: Bench, manager: Manager) -> None:
        keeper = await started(manager)
        await keeper.set(change(0, log_level="debug"))
        first = await keeper.set(change(1, full_ratio="0.9"))
        await keeper.set(change(2, full_ratio="0.95"))
        assert await keeper.set(change(1, full_ratio="0.9")) == first
        assert (first.before.version, first.configuration.version) == (1, 2)
        assert await texts_of(keeper) == {"full_ratio": "0.95", "log_level": "debug"} and keeper.current.version == 3

    run(body)


def test_moves_are_planned_although_a_later_release_has_set_what_this_one_does_not_take() -> None:
    async def body(bench: Bench, manager: Manager) -> None:
        kept_bytes = (await started(manager)).kept_bytes(100 << 30)
        values = [pb.ConfigurationValue(name="full_ratio", value="1.5")]
        made = pb.ConfigurationVersion(configuration=pb.Configuration(version=1, made_ns=1, values=values))
        tx = bench.engine.begin()
        tx.set(b"CNFG|" + (1).to_bytes(4, "big"), records.encode(made))
        await tx.commit()
        keeper = (await bench.start())._configuration
        assert keeper.current.version == 1
        assert keeper.kept_bytes(100 << 30) == kept_bytes, "the default"

    run(body)


def test_old_versions_are_dropped() -> None:
    async def body(bench: Bench, manager: Manager) -> None:
        keeper = await started(manager)
        for version in range(MAX_VERSIONS + 5):
            await keeper.set(change(version, deferred_changes=str(version + 1)))
        versions = (await keeper.get(pb.GetConfigurationRequest())).versions
        assert [one.configuration.version for one in versions] == list(range(6, MAX_VERSIONS + 6))
        with pytest.raises(NotFound, match=f"versions 6 to {MAX_VERSIONS + 5} are kept; 0 has the defaults"):
            await keeper.set(back(MAX_VERSIONS + 5, 5))

    run(body)


def test_there_is_nothing_to_configure_without_a_cluster_or_a_primary() -> None:
    async def body(bench: Bench, manager: Manager) -> None:
        with pytest.raises(Unavailable, match="no plan yet"):
            await manager._configuration.set(change(0, log_level="debug"))
        await manager.init(PLAN)
        manager._end_term()
        for call in (
            manager._configuration.get(pb.GetConfigurationRequest()),
            manager._configuration.set(change(0, log_level="debug")),
        ):
            with pytest.raises(NotPrimary):
                await call

    run(body)


def test_the_primary_itself_takes_values_and_its_settings_file_wins() -> None:
    async def body(bench: Bench, manager: Manager) -> None:
        keeper = await started(manager)
        assert manager._controller is not None
        assert keeper.move_bounds() == MoveBounds(1, 2), "the defaults"
        await keeper.set(change(0, moves_filling_disk="3", nearly_full_ratio="0.5"))
        assert manager._controller.move_executor.bounds() == MoveBounds(3, 2)
        status = await manager.get_status(pb.GetStatusRequest())
        assert status.configuration.version == status.manager_configuration.version == 1
        assert not status.manager_configuration.keys
        assert set(keeper.applied._applies) == {name for name, key in KEYS.items() if Role.MANAGER in key.roles}
        own = ConfigurationKeeper(keeper._primary_store, RoutingPublisher(), {"moves_filling_disk": 2}, bench.clock)
        await own.start_term(keeper._primary_store())
        assert own.move_bounds() == MoveBounds(2, 2)
        assert [(key.name, key.value, key.state) for key in own.applied.report.keys] == [
            ("moves_filling_disk", "2", pb.OWN_FILE)
        ]

    run(body)
