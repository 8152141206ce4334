import asyncio

from threefs import __version__
from threefs.telemetry.process_metrics import ProcessMetrics


def samples(metrics: ProcessMetrics) -> dict[str, float]:
    return {sample.name: sample.value for each in metrics.collect() for sample in each.samples}


async def test_a_process_says_its_release_memory_and_descriptors() -> None:
    metrics = ProcessMetrics()
    (build,) = [each for each in metrics.collect() if each.name == "threefs_build_info"]
    assert build.samples[0].labels["release"] == __version__
    found = samples(metrics)
    assert found["process_resident_memory_bytes"] > 1 << 20
    assert found["process_open_fds"] > 0 and found["process_cpu_seconds_total"] > 0
    assert "python_gc_collections_total" in found


async def test_the_lag_of_the_loop_is_measured_until_it_is_stopped() -> None:
    metrics = ProcessMetrics()
    metrics.start()
    while samples(metrics)["threefs_event_loop_lag_seconds_count"] < 2:
        await asyncio.sleep(0.01)
    metrics.stop()
    before = samples(metrics)["threefs_event_loop_lag_seconds_count"]
    await asyncio.sleep(0.6)
    assert samples(metrics)["threefs_event_loop_lag_seconds_count"] == before
