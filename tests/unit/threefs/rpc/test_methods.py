from pathlib import Path

import pytest

from threefs.errors import LimitExceeded
from threefs.rpc import methods
from threefs.rpc.frames import Kind
from threefs.rpc.methods import Method
from threefs.wire import backup_pb2, manager_pb2, meta_pb2, storage_pb2
from threefs.wire import storage_pb2 as pb


def declared() -> list[Method]:  # type: ignore[type-arg]
    return [value for value in vars(methods).values() if isinstance(value, Method)]


def test_every_method_of_the_contract_is_there_once() -> None:
    in_proto = {
        f"{service.name}.{method.name}"
        for module in (backup_pb2, manager_pb2, meta_pb2, storage_pb2)
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }
    assert sorted(str(method) for method in declared()) == sorted(in_proto)


def test_numbers_are_unique_and_fit_the_frame() -> None:
    numbers = [method.number for method in declared()]
    assert len(numbers) == len(set(numbers))
    assert all(0 < number < 2**16 for number in numbers)


@pytest.mark.parametrize("tag", [b"\x0a", b"\x8a\x00", b"\x8a\x80\x00"])
def test_rows_of_two_bytes_are_counted_however_they_are_written(tag: bytes) -> None:
    """A request of 8 MiB of them took a gigabyte, and counted as 8 MiB."""
    body = (tag + b"\0") * 1000
    assert len(pb.WriteRequest.FromString(body).writes) == 1000
    assert methods.WRITE.request_bytes(body) >= 1000 * 200


@pytest.mark.parametrize("tag", [b"\x62", b"\xe2\x00"])
def test_rows_within_rows_count_as_well(tag: bytes) -> None:
    row = (tag + b"\0") * 1000
    body = b"\x0a" + bytes([len(row) & 0x7F | 0x80, len(row) >> 7]) + row
    assert len(pb.WriteRequest.FromString(body).writes[0].entries) == 1000
    assert methods.WRITE.request_bytes(body) >= 1000 * 200


def test_ordinary_requests_count_little_more_than_they_are_long() -> None:
    body = pb.WriteRequest(writes=[pb.ChunkWrite(offset=5, checksum=0x0A0A0A0A)]).SerializeToString()
    assert methods.WRITE.request_bytes(body) < 4096
    assert methods.STAT.request_bytes(bytes(1000)) == 9000, "a column, the groups of the user, and no rows"
    assert methods.STAT_FS.request_bytes(bytes(1000)) == 1000


@pytest.mark.parametrize("count", [1000, 1_000_000])
def test_numbers_in_a_column_count_for_what_they_take(count: int) -> None:
    """A request of 8 MiB of numbers of one byte counted for 8 MiB, and took 64."""
    body = pb.WriteRequest(writes=[pb.ChunkWrite(pieces=[1] * count)]).SerializeToString()
    assert 9 * count <= methods.WRITE.request_bytes(body) < 10 * count + 4096
    long = pb.WriteRequest(writes=[pb.ChunkWrite(pieces=[1 << 31] * count)]).SerializeToString()
    assert methods.WRITE.request_bytes(long) < 20 * count or count == 1000, "numbers of five bytes take little more"


def test_what_should_not_be_parsed_is_refused() -> None:
    with pytest.raises(LimitExceeded, match="with more than 65536 fields"):
        methods.BATCH.request_bytes(b"\x12\0" * 70_000)
    with pytest.raises(LimitExceeded, match=r"Meta\.Stat of 1048577 bytes"):
        methods.STAT.request_bytes(bytes((1 << 20) + 1))
    assert methods.BATCH_STAT.request_bytes(bytes(4096 * 1024)), "thousands of long paths"


def test_letters_that_look_like_rows_are_no_rows() -> None:
    """In UTF-8 the second byte of this letter is a tag of Meta.BatchStat."""
    body = meta_pb2.BatchStatRequest(paths=["К".encode() * 1000] * 100).SerializeToString()
    assert methods.BATCH_STAT.request_bytes(body) < len(body) + (1 << 16)


def test_the_disks_of_a_large_cluster_fit_in_a_request() -> None:
    disks = [manager_pb2.PlannedNode(node_id=number, domain=f"rack-{number // 40}") for number in range(1, 10_001)]
    assert methods.INIT.request_bytes(manager_pb2.InitRequest(storage=disks).SerializeToString())


def test_the_page_of_the_protocol_names_all_methods_and_kinds_of_frames() -> None:
    page = (Path(__file__).parents[4] / "docs" / "protocol.md").read_text(encoding="utf-8")
    _, table = page.split("| kind | sender | meaning |", 1)
    table, _ = table.split("\n\n", 1)
    assert [kind.name for kind in Kind if f"{kind.name} {kind.value}" not in table] == []
    assert [method.name for method in declared() if f"`{method.name}`" not in page] == []
