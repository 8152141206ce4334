import pytest
from threefs_meta.ops.statistics import statistics
from threefs_meta.store import keys
from threefs_meta.tick_queue import QueueFront

from tests.harness.meta_harness import MetaBench
from threefs.wire import meta_pb2 as pb


def test_what_was_found_empty_is_not_read_again_but_for_its_end_and_now_and_then() -> None:
    front = QueueFront()
    assert front.first(1000) == 0
    front.found_empty(1000, 1000)
    assert 950 < front.first(1001) < 1000
    front.found_empty(1100, 1100)
    assert 1050 < front.first(1101) < 1100
    front.found_empty(1120, 1200)
    assert front.first(1201) == 1120, "there is something"
    assert front.first(3000) == 0
    assert front.first(3001) == 0, "until it was found empty"
    front.found_empty(3001, 3001)
    assert front.first(3002) > 2950


async def test_a_queue_is_not_read_where_it_was_found_empty(bench: MetaBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A million removals, entries of the trash, or changes of usage may have been there."""
    firsts: list[int] = []

    def noting(name: str) -> None:
        range_of = getattr(keys, name)

        def noted(*numbers: int) -> tuple[bytes, bytes]:
            firsts.append(bench.context.logical_clock.tick - numbers[-1])
            return range_of(*numbers)  # type: ignore[no-any-return]

        monkeypatch.setattr(keys, name, noted)

    async def rounds(count: int) -> None:
        for _ in range(count):
            await bench.pass_ticks(1)
            await bench.collector.collect()
            await bench.collector._trash_reaper.expire()
            await bench.usage_aggregator.run_once()

    await bench.set_trash("/", 1)
    await bench.set_quota(uid=0, limit_inodes=1000)
    await rounds(60)
    noting("removals")
    noting("trashed_until")
    noting("deltas")
    noting("removals_from")
    await rounds(3)
    await statistics(bench.context, pb.StatisticsRequest())
    assert len(firsts) == 3 * 3 + 2 and max(firsts) < 30
    for path in ("/a", "/b"):
        await bench.mkdir(path)
        await bench.create(path + "/f")
        await bench.remove(path, recursive=True)
    await bench.set_trash("/", 0)
    await bench.mkdir("/c/d", parents=True)
    await bench.remove("/c", recursive=True)
    await rounds(20)
    assert await bench.names("/.trash/0") == [] and await bench.names("/") == [".trash"]
    for table in (keys.REMOVALS, keys.TRASH, keys.DELTAS):
        assert not await bench.engine.begin().get_range(*table)
