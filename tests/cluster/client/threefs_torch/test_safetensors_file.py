"""safetensors files on a real cluster: beside the library safetensors, and by ranks of torch.distributed."""

from pathlib import Path
from typing import Any

import pytest
from threefs_client import FileSystem

torch = pytest.importorskip("torch", reason="torch is not installed (make ml-venv)")
library = pytest.importorskip("safetensors.torch", reason="safetensors is not installed (make ml-venv)")
import threefs_torch  # noqa: E402
from threefs_checkpoint import safetensors_format  # noqa: E402
from threefs_checkpoint.loading import LoadReport  # noqa: E402
from threefs_torch.safetensors_file import SafetensorsFile  # noqa: E402

from tests.harness import prometheus  # noqa: E402
from tests.harness.cluster import LocalCluster  # noqa: E402
from tests.harness.torch_ranks import run_ranks  # noqa: E402
from threefs.errors import InvalidArgument, NotFound, NotSupported  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")

_DTYPES = [*(dtype for dtype in library._TYPES.values() if dtype is not torch.bool), torch.float8_e8m0fnu]


def tensors() -> dict[str, Any]:
    numbers = torch.Generator().manual_seed(3)
    made = {str(dtype): torch.randint(0, 3, (37, 21), generator=numbers).to(dtype) for dtype in _DTYPES}
    return {
        **made,
        "flags": torch.tensor([True, False, True]),
        "large": torch.randn(3, 700, 500, generator=numbers),
        "scalar": torch.tensor(2.5),
        "none": torch.empty(4, 0),
    }


def same(found: dict[str, Any], wanted: dict[str, Any]) -> bool:
    return found.keys() == wanted.keys() and all(_same(found[name], tensor) for name, tensor in wanted.items())


def _same(found: Any, wanted: Any) -> bool:
    raw = [tensor.contiguous().reshape(-1).view(torch.uint8) for tensor in (found, wanted)]
    return bool(found.dtype == wanted.dtype and found.shape == wanted.shape and torch.equal(*raw))


def test_the_library_writes_and_reads_the_same_files(url: str, path: str, fs: FileSystem, tmp_path: Path) -> None:
    wanted = tensors()
    length = threefs_torch.save_file(wanted, f"{url}/a", {"format": "pt"}, chunk_bytes=1 << 16)
    content = fs.read_file(f"{path}/a")
    assert len(content) == length and same(threefs_torch.load_file(f"{url}/a"), wanted)
    exotic = str(torch.float8_e8m0fnu)  # the library has no name for it on this side
    with_names = {name: tensor for name, tensor in wanted.items() if name != exotic}
    threefs_torch.save_file(with_names, f"{url}/b", {"format": "pt"})
    assert same(library.load(fs.read_file(f"{path}/b")), with_names)
    library.save_file(with_names, tmp_path / "c", {"format": "pt"})
    fs.write_file(f"{path}/c", (tmp_path / "c").read_bytes())
    assert same(threefs_torch.load_file(f"{url}/c"), with_names)
    some = ["large", "flags"]
    assert same(threefs_torch.load_file(f"{url}/c", some), {name: wanted[name] for name in some})


def test_parts_of_tensors(url: str) -> None:
    wanted = tensors()
    threefs_torch.save_file(wanted, f"{url}/a")
    with SafetensorsFile(f"{url}/a") as file:
        header = file.bytes_read
        large = file.get_slice("large")
        assert torch.equal(large[1, 5:9], wanted["large"][1, 5:9]) and file.bytes_read == header + 4 * 500 * 4
        assert torch.equal(large[:, :, 100], wanted["large"][:, :, 100])
        assert torch.equal(large[..., 3:, 7:9], wanted["large"][..., 3:, 7:9])
        assert torch.equal(large[2:1], wanted["large"][2:1]) and large.get_shape() == [3, 700, 500]
        half = str(torch.bfloat16)
        assert torch.equal(file.get_slice(half)[-3:, 20], wanted[half][-3:, 20])
        assert file.get_tensor("scalar") == 2.5


def test_tensors_that_lie_in_memory_in_other_ways(url: str) -> None:
    weight = torch.arange(12.0).reshape(3, 4)
    wanted = {"turned": weight.t(), "second": weight[:, ::2], "conj": torch.tensor([1 + 2j, 3j]).conj()}
    threefs_torch.save_file({**wanted, "grad": torch.nn.Parameter(weight)}, f"{url}/a")
    found = threefs_torch.load_file(f"{url}/a")
    assert all(torch.equal(found[name], tensor) for name, tensor in wanted.items())
    assert torch.equal(found["grad"], weight) and not found["grad"].requires_grad
    model = torch.nn.Linear(30, 7)
    threefs_torch.save_file(model.state_dict(), f"{url}/a")
    other = torch.nn.Linear(30, 7)
    other.load_state_dict(threefs_torch.load_file(f"{url}/a"))
    assert torch.equal(other.weight, model.weight)


def test_another_device(url: str) -> None:
    wanted = tensors()
    threefs_torch.save_file(wanted, f"{url}/a")
    found = threefs_torch.load_file(f"{url}/a", device="meta")
    assert {name: (tensor.dtype, tensor.shape) for name, tensor in found.items()} == {
        name: (tensor.dtype, tensor.shape) for name, tensor in wanted.items()
    }
    with SafetensorsFile(f"{url}/a", device="meta") as file:
        assert file.get_slice("large")[0].is_meta and file.get_tensor("scalar").is_meta


def test_what_cannot_be_saved_or_loaded_is_named(url: str, path: str, fs: FileSystem) -> None:
    with pytest.raises(InvalidArgument, match=r"tensor 'z' is torch\.complex128"):
        threefs_torch.save_file({"z": torch.zeros(3, dtype=torch.complex128)}, f"{url}/a")
    with pytest.raises(InvalidArgument, match="is not on a cluster"):
        threefs_torch.load_file("/a")
    with pytest.raises(NotFound):
        threefs_torch.load_file(f"{url}/a")
    start, _ = safetensors_format.encode_header({"w": ("F4", (4,))})
    fs.write_file(f"{path}/narrow", start + b"ab")
    with pytest.raises(NotSupported, match=r"'w' of .*/narrow is F4"):
        threefs_torch.load_file(f"{url}/narrow")


def _load_once(url: str) -> tuple[int, int, bool]:
    report = LoadReport()
    found = threefs_torch.load_once(url, report=report)
    return report.bytes_read, report.bytes_received, same(found, tensors())


@pytest.mark.timeout(300)  # a cluster of its own, torch in a process of its own, and thirteen ranks
def test_ranks_read_each_byte_once(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, metrics=True) as cluster:
        url = f"{cluster.address}/a"
        length = threefs_torch.save_file(tensors(), url, chunk_bytes=1 << 16)
        data = sum(tensor.nbytes for tensor in tensors().values())
        for world in (2, 3, 8):
            before = sent_bytes(cluster)
            found = run_ranks(world, _load_once, url)
            sent = sent_bytes(cluster) - before
            assert all(is_same for _, _, is_same in found)
            assert sum(read for read, _, _ in found) == length
            assert sum(received for _, received, _ in found) == data * (world - 1)
            assert length <= sent < 1.2 * length, "with the headers of messages"


def sent_bytes(cluster: LocalCluster) -> float:
    """By all storage services."""
    total = 0.0
    for program in cluster.storage.values():
        families = prometheus.families(prometheus.scrape(program.settings["metrics_port"]))
        total += sum(sample.value for sample in families["threefs_rpc_sent_bytes"].samples)
    return total


def _some_ranks(url: str) -> bool | None:
    from torch import distributed

    group = distributed.new_group([0, 2])
    if distributed.get_rank() == 1:
        return None
    return same(threefs_torch.load_once(url, group), tensors())


def test_a_process_group_of_some_ranks(url: str) -> None:
    threefs_torch.save_file(tensors(), f"{url}/a")
    assert run_ranks(3, _some_ranks, f"{url}/a") == [True, None, True]
