import io

import pytest
from threefs_client import FileSystem

pytest.importorskip("torch", reason="torch is not installed (make ml-venv)")
from threefs_torch.chunked_file import BatchSender


def test_everything_is_durable_at_the_end(fs: FileSystem) -> None:
    with fs.open("/batch-sender/a", "wb", parents=True) as file, BatchSender(fs) as sender:
        for number in range(10):
            sender.send([(file, 1000 * number, memoryview(bytes([number]) * 1000))])
    assert fs.read_file("/batch-sender/a") == b"".join(bytes([number]) * 1000 for number in range(10))


def test_an_error_of_a_batch_comes_with_the_next_call(fs: FileSystem) -> None:
    fs.write_file("/batch-sender/read-only", b"x", parents=True)
    content = memoryview(b"abc")
    sent = 0
    with (
        fs.open("/batch-sender/read-only", "rb") as file,
        pytest.raises(io.UnsupportedOperation, match="not open for writing"),
        BatchSender(fs) as sender,
    ):
        for _ in range(3):
            sender.send([(file, 0, content)])
            sent += 1
    assert sent == 1
    with (
        fs.open("/batch-sender/read-only", "rb") as file,
        pytest.raises(io.UnsupportedOperation),
        BatchSender(fs) as sender,
    ):
        sender.send([(file, 0, content)])  # the end of the block tells of the last one


def test_an_error_of_the_caller_ends_what_is_being_sent(fs: FileSystem) -> None:
    with fs.open("/batch-sender/b", "wb", parents=True) as file, pytest.raises(KeyError), BatchSender(fs) as sender:
        sender.send([(file, 0, memoryview(bytearray(1000)))])
        raise KeyError("of the caller")
