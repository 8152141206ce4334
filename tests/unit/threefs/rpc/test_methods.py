from pathlib import Path

from threefs.rpc import methods
from threefs.rpc.frames import Kind
from threefs.rpc.methods import Method
from threefs.wire import backup_pb2, manager_pb2, meta_pb2, storage_pb2


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


def test_the_page_of_the_protocol_names_all_methods_and_kinds_of_frames() -> None:
    page = (Path(__file__).parents[4] / "docs" / "protocol.md").read_text(encoding="utf-8")
    _, table = page.split("| kind | sender | meaning |", 1)
    table, _ = table.split("\n\n", 1)
    assert [kind.name for kind in Kind if f"{kind.name} {kind.value}" not in table] == []
    assert [method.name for method in declared() if f"`{method.name}`" not in page] == []
