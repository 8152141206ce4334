"""What Prometheus sees of a process, and promtool, which checks what it is given."""

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from urllib.request import urlopen

import pytest
from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

_SCRAPE_S = 60.0

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed (apt-get install prometheus)"
)


def scrape(port: int) -> str:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=_SCRAPE_S) as answer:
        text: str = answer.read().decode()
        return text


def generate_text(metrics: Iterable[Metric]) -> str:
    """As a scrape gives them."""
    registry = CollectorRegistry()
    registry.register(_Collected(metrics))
    return generate_latest(registry).decode()


class _Collected(Collector):
    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = list(metrics)

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def families(text: str) -> dict[str, Metric]:
    return {family.name: family for family in text_string_to_metric_families(text)}


def sample_names(text: str) -> set[str]:
    """As queries name them: with `_total`, `_bucket`, `_sum`, `_count`."""
    return {sample.name for family in text_string_to_metric_families(text) for sample in family.samples}


def samples(metrics: Iterable[Metric]) -> dict[tuple[str, ...], float]:
    """By name and the values of the labels."""
    return {(sample.name, *sample.labels.values()): sample.value for each in metrics for sample in each.samples}


def promtool(*arguments: str | Path, text: str = "") -> str:
    """What it says if it finds something wrong; empty if all is well."""
    command = ["promtool", *map(str, arguments)]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=_SCRAPE_S, check=False)
    wrong = done.returncode != 0 or (arguments[:2] == ("check", "metrics") and bool(done.stderr.strip()))
    return (done.stdout + done.stderr) if wrong else ""
