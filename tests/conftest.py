"""Fixtures for everyone."""

import inspect
import os
import signal
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import HealthCheck, settings
from threefs_client import FileSystem, keyring

from tests.harness import file_order, rpc
from tests.harness.cluster import LocalCluster
from tests.harness.etcd import EtcdCluster, needs_etcd
from tests.harness.meta_harness import MetaBench
from tests.harness.postgres import PostgresServer, needs_postgres
from threefs.env.buffers import POISON_VARIABLE

TESTS = os.path.dirname(os.path.abspath(__file__))

#: I14 is checked in all tests, and in the programs that they start.
os.environ[POISON_VARIABLE] = "1"

#: A shell lets what it starts in the background ignore this signal, and programs that tests start would do so, too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

#: A machine may be slow: no example is judged by its time.
settings.register_profile("threefs", deadline=None, suppress_health_check=[HealthCheck.too_slow])
#: For `make fast`.
settings.register_profile("fast", settings.get_profile("threefs"), max_examples=25)
settings.load_profile("threefs")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Workers of `make test` take the files in this order."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        tests.setdefault(os.path.relpath(item.path, TESTS), []).append(item)
    order = file_order.in_turns({file: [given_s(item) for item in found] for file, found in tests.items()})
    items[:] = [item for file in order for item in tests[file]]


def given_s(item: pytest.Item) -> float:
    marker = item.get_closest_marker("timeout")
    return float(marker.args[0]) if marker is not None else 0.0


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test that is a coroutine runs on a loop of its own: uvloop, or what its parameter `loop` says. A meta service
    that it is given starts on that loop, and must pass the audit in the end."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    benches = [each for each in arguments.values() if isinstance(each, MetaBench)]

    async def whole() -> None:
        for bench in benches:
            await bench.start()
        await pyfuncitem.obj(**arguments)
        for bench in benches:
            await bench.audit()

    rpc.run(whole, str(arguments.get("loop", "uvloop")))
    return True


@pytest.fixture
def bench(request: pytest.FixtureRequest) -> MetaBench:
    """A meta service over a store in memory. `@pytest.mark.trouble(conflict_rate=0.1)` makes the store fail, by the
    test's parameter `seed`."""
    marker = request.node.get_closest_marker("trouble")
    drawn = getattr(request.node, "callspec", None)
    seed = drawn.params.get("seed", 0) if drawn is not None else 0
    return MetaBench(**{"seed": seed, **(marker.kwargs if marker is not None else {})})


@pytest.fixture(autouse=True)
def signals_as_they_were() -> Iterator[None]:
    """Children that a later test forks must end when they are told to."""
    yield
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.fixture(autouse=True)
def logs_as_they_were() -> Iterator[None]:
    """A test that captures logs leaves structlog configured: clients would write to standard output from then on."""
    yield
    if structlog.is_configured():
        structlog.reset_defaults()


@pytest.fixture(scope="module", autouse=True)
def no_keys_of_others(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What `threefs up` notes is neither that of the person who runs the tests, nor of a cluster of another module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(keyring.DATA_VARIABLE, str(tmp_path_factory.mktemp("data-home")))
        for name in (keyring.TOKEN_VARIABLE, keyring.FILE_VARIABLE, keyring.CLUSTER_VARIABLE):
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """One manager, one meta service, three storage processes. Shared: do not kill any of them."""
    with LocalCluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="session")
def fs(cluster: LocalCluster) -> Iterator[FileSystem]:
    """A connection to the shared cluster; use a directory of your own."""
    with cluster.connect() as connected:
        yield connected


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    """Three members. Shared: use a name of your own, and kill none of them."""
    needs_etcd()
    with EtcdCluster(tmp_path_factory.mktemp("etcd")) as running:
        yield running


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """Shared: use a schema of your own, and kill nothing."""
    needs_postgres()
    with PostgresServer() as running:
        yield running
