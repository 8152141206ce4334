# mypy: disable-error-code="import-not-found,import-untyped"
"""Libraries that training uses open threefs:// paths. Without one of them its test is skipped (`make ml-venv` installs
them)."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threefs_fsspec import ThreefsFileSystem

from tests.harness.cluster import LocalCluster

#: Their warnings are not ours.
pytestmark = pytest.mark.filterwarnings("default")

_NUMBERS = itertools.count()


def library(name: str) -> Any:
    return pytest.importorskip(name, reason=f"{name} is not installed (make ml-venv)", exc_type=ImportError)


@pytest.fixture(scope="module")
def connected(cluster: LocalCluster) -> Iterator[ThreefsFileSystem]:
    """With the options that libraries find: none."""
    fs = ThreefsFileSystem(cluster.address)
    yield fs
    fs.client.close()
    ThreefsFileSystem.clear_instance_cache()


@pytest.fixture
def url(connected: ThreefsFileSystem) -> str:
    """Of an empty directory."""
    path = f"/libraries/{next(_NUMBERS)}"
    connected.makedirs(path)
    return str(connected.unstrip_protocol(path))


def test_pandas(url: str) -> None:
    pandas = library("pandas")
    library("pyarrow")
    table = pandas.DataFrame({"name": ["a", "b", "c"], "value": [1, 2, 3]})
    table.to_parquet(f"{url}/t.parquet")
    table.to_csv(f"{url}/t.csv.gz", index=False)
    assert pandas.read_parquet(f"{url}/t.parquet").equals(table)
    assert pandas.read_parquet(f"{url}/t.parquet", columns=["value"])["value"].sum() == 6
    assert pandas.read_csv(f"{url}/t.csv.gz").to_dict() == table.to_dict()


def test_pyarrow_by_fsspec(url: str, connected: ThreefsFileSystem) -> None:
    pyarrow = library("pyarrow")
    from pyarrow import dataset, parquet

    table = pyarrow.table({"value": range(1000)})
    parquet.write_table(table, f"{url}/t.parquet", filesystem=connected)
    assert parquet.read_table(f"{url}/t.parquet", filesystem=connected).equals(table)
    path = connected._strip_protocol(url)
    assert dataset.dataset(path, filesystem=connected, format="parquet").count_rows() == 1000


def test_datasets_of_hugging_face(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")
    monkeypatch.setenv("THREEFS_ADDRESS", url[: url.index("/libraries")])  # it drops the host of a pattern
    datasets = library("datasets")
    pandas = library("pandas")
    for number in range(3):
        pandas.DataFrame({"value": range(number * 10, number * 10 + 10)}).to_parquet(f"{url}/in/{number}.parquet")
    pattern = f"threefs://{url[url.index('/libraries') :]}/in/*.parquet"
    loaded = datasets.load_dataset("parquet", data_files=pattern, split="train", cache_dir=str(tmp_path / "cache"))
    assert loaded["value"][:] == list(range(30))
    streamed = datasets.load_dataset("parquet", data_files=pattern, split="train", streaming=True)
    assert [row["value"] for row in streamed] == list(range(30))
    loaded.save_to_disk(f"{url}/saved")
    assert datasets.load_from_disk(f"{url}/saved")["value"][:] == list(range(30))


def test_safetensors(url: str, connected: ThreefsFileSystem) -> None:
    library("safetensors")
    from safetensors import numpy as safetensors

    tensors: dict[str, Any] = {"a": np.arange(12, dtype=np.float32).reshape(3, 4), "b": np.ones(5, np.int64)}
    connected.pipe_file(f"{url}/model.safetensors", safetensors.save(tensors))
    found = safetensors.load(connected.cat_file(f"{url}/model.safetensors"))
    assert found.keys() == tensors.keys() and all((found[name] == tensors[name]).all() for name in tensors)


def test_duckdb(url: str, connected: ThreefsFileSystem) -> None:
    duckdb = library("duckdb")
    library("pyarrow")
    connection = duckdb.connect()
    connection.register_filesystem(connected)
    connection.execute(f"COPY (SELECT range AS value FROM range(1000)) TO '{url}/t.parquet' (FORMAT parquet)")
    assert connection.execute(f"SELECT sum(value) FROM read_parquet('{url}/*.parquet')").fetchall() == [(499500,)]
    connection.close()


def test_zarr(url: str) -> None:
    zarr = library("zarr")
    array = zarr.create_array(f"{url}/a.zarr", shape=(100, 100), chunks=(10, 50), dtype="f4")
    array[:] = np.arange(10_000, dtype="f4").reshape(100, 100)
    again = zarr.open_array(f"{url}/a.zarr", mode="r")
    assert float(again[37, 5]) == 3705 and again[:].sum() == np.arange(10_000, dtype="f4").sum()


def test_dask(url: str) -> None:
    library("dask")
    pandas = library("pandas")
    frames = library("dask.dataframe")
    table = pandas.DataFrame({"value": range(1000)})
    frames.from_pandas(table, npartitions=4).to_parquet(f"{url}/t")
    assert int(frames.read_parquet(f"{url}/t")["value"].sum().compute()) == 499500
    spread = frames.read_parquet(f"{url}/t")["value"].sum().compute(scheduler="processes", num_workers=2)
    assert int(spread) == 499500
