"""Shows with pip's resolver that threefs installs beside what training and inference use: `make compatibility`.

Nothing is installed. First threefs is resolved together with PyTorch, pandas and pyarrow. Then, for each program that
brings requirements of its own on the same packages (LMCache, vLLM), threefs is resolved under those requirements. They
are read from the metadata of the program, whose other dependencies (GPU libraries) have nothing to do with threefs.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
WITH_US = f"{ROOT}[fsspec]"
TRAINING = ("torch==2.13.0", "pandas", "pyarrow", "safetensors", "numpy>=1.26")
#: Programs with narrow requirements, each at a version that these are known of.
NEIGHBOURS = ("lmcache==0.5.6", "vllm==0.33.0")
#: The libraries whose versions generated code and arrays of all of them must agree on.
SHOWN = ("protobuf", "numpy", "grpcio", "torch", "pandas", "pyarrow", "fsspec")


def resolve(*requirements: str, constraints: Iterable[str] = (), dependencies: bool = True) -> list[dict[str, Any]]:
    """The metadata of what pip would install into an empty environment. Raises CalledProcessError if there is no
    answer."""
    with tempfile.TemporaryDirectory() as scratch:
        bounds, report = Path(scratch) / "constraints.txt", Path(scratch) / "report.json"
        bounds.write_text("\n".join(constraints))
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"]
        command += ["--disable-pip-version-check", "--constraint", str(bounds), "--report", str(report)]
        command += [] if dependencies else ["--no-deps"]
        subprocess.run([*command, *requirements], check=True)
        return [each["metadata"] for each in json.loads(report.read_text())["install"]]


def versions(found: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    return {canonicalize_name(each["name"]): each["version"] for each in found}


def shared(wanted: Iterable[str], ours: Iterable[str]) -> list[str]:
    """The requirements that apply here and are about packages of ours, as constraints."""
    ours = set(ours)
    found = [Requirement(each) for each in wanted]
    return [
        f"{each.name}{each.specifier}"
        for each in found
        if canonicalize_name(each.name) in ours
        and each.specifier
        and (each.marker is None or each.marker.evaluate({"extra": ""}))
    ]


def main() -> None:
    beside_training = versions(resolve(WITH_US, *TRAINING))
    _show(", ".join(TRAINING), beside_training)
    ours = versions(resolve(WITH_US))
    for neighbour in NEIGHBOURS:
        (metadata,) = resolve(neighbour, dependencies=False)
        bounds = shared(metadata["requires_dist"], ours)
        _show(f"{neighbour} ({', '.join(bounds)})", versions(resolve(WITH_US, constraints=bounds)))


def _show(beside: str, found: Mapping[str, str]) -> None:
    chosen = " ".join(f"{name}={found[name]}" for name in SHOWN if name in found)
    print(f"threefs installs beside {beside}: {chosen}", flush=True)


if __name__ == "__main__":
    main()
