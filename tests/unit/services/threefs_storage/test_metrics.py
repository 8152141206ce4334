from collections.abc import Iterable
from pathlib import Path

from prometheus_client import Metric
from threefs_storage.metrics import background_metrics, target_metrics
from threefs_storage.scheduling.background_scheduler import Work, WorkCounters

from tests.harness.chain_harness import SERVING, SYNCING, chain_of


def samples(families: Iterable[Metric]) -> dict[tuple[str, ...], float]:
    return {(sample.name, *sample.labels.values()): sample.value for each in families for sample in each.samples}


def test_every_kind_of_work_has_its_figures() -> None:
    work = {each: WorkCounters() for each in Work}
    work[Work.FOLD] = WorkCounters(3, 4000, 0.5)
    found = samples(background_metrics(work))
    assert found["threefs_storage_background_pieces_total", "fold"] == 3
    assert found["threefs_storage_background_bytes_total", "fold"] == 4000
    assert found["threefs_storage_background_waited_seconds_total", "fold"] == 0.5
    assert found["threefs_storage_background_pieces_total", "resync"] == 0


async def test_each_target_says_what_it_keeps_and_how_it_is(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        await chain.write(b"x" * 5000)
        targets = [chain[1].target]
        number = str(targets[0].target_id)
        before = samples(target_metrics(targets))
        assert before["threefs_target_chunks", number] == 1
        assert before["threefs_target_used_bytes", number] >= 5000
        assert 0 < before["threefs_disk_free_bytes",] <= before["threefs_disk_capacity_bytes",]
        assert before["threefs_disk_read_only",] == 0
        assert before["threefs_target_state", number, "serving"] == 1
        assert before["threefs_target_state", number, "syncing"] == 0
        commits = before["threefs_target_commit_duration_seconds_count", number]
        assert commits >= 1
        assert before["threefs_target_commit_duration_seconds_bucket", number, "+Inf"] == commits
        assert not any(name == "threefs_target_resync_chunks" for name, *_ in before)
        await chain.write(b"y" * 5000)
        chain.change((1, SERVING), (2, SYNCING))
        targets[0].resync_counts = (3, 10)
        targets[0].repaired_chunks = 2
        after = samples(target_metrics(targets))
        assert after["threefs_target_commit_duration_seconds_count", number] > commits
        assert after["threefs_target_resync_chunks", number, "done"] == 3
        assert after["threefs_target_resync_chunks", number, "left"] == 7
        assert after["threefs_target_repaired_chunks_total", number] == 2
