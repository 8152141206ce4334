"""What programs import before they do anything: their users wait for it, and the tests start them a thousand times."""

import subprocess
import sys

import pytest

from tests.harness.processes import environment

#: What no part of a cluster that stands on its own embedded engine needs.
OPTIONAL = {"fsspec", "matplotlib", "opentelemetry", "psycopg", "pyarrow", "torch"}
#: What a service needs, and a client does not.
OF_SERVICES = {"grpc", "prometheus_client", "rocksdict", "structlog"}
#: What prints tables and bars, for commands that do so.
FOR_PEOPLE = {"rich"}


def loaded_by(script: str) -> set[str]:
    """The modules on top that are there when it has ended."""
    whole = f"import sys\ntry:\n    {script}\nexcept SystemExit:\n    pass\nprint(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", whole], env=environment(), capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in done.stderr.split()}


def cli(*words: str) -> str:
    return f"from threefs_cli.main import main; main({list(words)})"


@pytest.mark.processes
@pytest.mark.parametrize("words", [["--help"], ["ley"], ["key", "--help"]])
def test_what_needs_no_cluster_imports_no_client(words: list[str]) -> None:
    loaded = loaded_by(cli(*words))
    assert "click" in loaded
    assert not loaded & {"asyncio", "google", "numpy", "threefs_client", *FOR_PEOPLE, *OF_SERVICES, *OPTIONAL}


@pytest.mark.processes
@pytest.mark.parametrize("script", ["import threefs_client", cli("ls", "--help"), cli("put", "--help")])
def test_a_client_imports_nothing_of_services(script: str) -> None:
    loaded = loaded_by(script)
    assert "threefs_client" in loaded
    assert not loaded & (FOR_PEOPLE | OF_SERVICES | OPTIONAL)


@pytest.mark.processes
@pytest.mark.parametrize("service", ["threefs_manager", "threefs_meta", "threefs_storage"])
def test_a_service_imports_nothing_of_clients(service: str) -> None:
    loaded = loaded_by(f"from {service}.main import main; main(['--help'])")
    assert service in loaded
    assert not loaded & {"threefs_client", "threefs_cli", *OPTIONAL}
