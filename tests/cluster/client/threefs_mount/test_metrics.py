"""The metrics of a mount: `threefs mount --metrics-port`."""

from pathlib import Path
from types import SimpleNamespace

from threefs_mount.metrics import mount_metrics

from tests.harness.cluster import LocalCluster
from tests.harness.mounts import Mount, need_mounts
from tests.harness.processes import free_port
from tests.harness.prometheus import families, needs_promtool, promtool, samples, scrape
from threefs.telemetry.histogram import Histogram


def test_requests_are_shown_by_operation() -> None:
    lookups = Histogram()
    lookups.observe(0.25)
    session = SimpleNamespace(durations={"lookup": lookups}, requests_in_flight=3)
    found = samples(mount_metrics(session, SimpleNamespace(unsent_bytes=7, open_count=2)))
    assert found["threefs_mount_request_duration_seconds_sum", "lookup"] == 0.25
    assert found["threefs_mount_requests_in_flight",] == 3
    assert found["threefs_mount_unsent_bytes",] == 7 and found["threefs_mount_open_files",] == 2


@needs_promtool
def test_prometheus_sees_what_programs_do_on_a_mount(cluster: LocalCluster, tmp_path: Path) -> None:
    need_mounts()
    port = free_port()
    mount = Mount(cluster.address, tmp_path / "mnt", "--metrics-port", str(port))
    root = mount.mount()
    try:
        (root / "of-a-mount").write_bytes(b"x" * 10_000)
        with (root / "of-a-mount").open("rb") as file:
            assert file.read() == b"x" * 10_000
            text = scrape(port)
        (root / "of-a-mount").unlink()
    finally:
        mount.umount()
    assert promtool("check", "metrics", text=text) == ""
    found = samples(families(text).values())
    operations = {key[1] for key in found if key[0] == "threefs_mount_request_duration_seconds_count"}
    assert {"lookup", "create", "write", "read"} <= operations, operations
    assert found["threefs_mount_open_files",] == 1
    assert found["threefs_client_call_duration_seconds_count", "Write"] >= 1
    assert "threefs_build_info" in families(text)
