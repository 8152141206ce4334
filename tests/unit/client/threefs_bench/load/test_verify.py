import pytest
from threefs_bench.load import verify
from threefs_bench.load.verify import Ledger

from threefs.errors import Corrupt


def block(file: int = 1, offset: int = 8192, generation: int = 7, size: int = 4096) -> bytearray:
    content = bytearray(b"abcdefgh" * (size // 8))
    verify.stamp(memoryview(content), file, offset, generation)
    return content


def test_a_block_says_what_it_is() -> None:
    content = block()
    verify.check(memoryview(content), "/a", (1, 8192, 4096))
    verify.check(memoryview(content), "/a", (1, 8192, 4096), 7)
    small = block(size=512)
    verify.check(memoryview(small), "/a", (1, 8192, 512), 7)


@pytest.mark.parametrize("at", [0, 5, 9, 17, 25, 29, 33, 2000, 4095])
def test_any_changed_byte_is_noticed(at: int) -> None:
    content = block()
    content[at] ^= 1
    with pytest.raises(Corrupt, match="/a: block of 4096 bytes at offset 8192: "):
        verify.check(memoryview(content), "/a", (1, 8192, 4096))


@pytest.mark.parametrize(
    ("row", "generation", "said"),
    [
        ((1, 4096, 4096), None, "it is the block of 4096 bytes at offset 8192 of file 1"),
        ((0, 8192, 4096), None, "should be that of file 0"),
        ((1, 8192, 4096), 8, "it is of generation 7, and 8 was written last"),
    ],
)
def test_a_block_of_another_place_or_time_is_wrong(row: tuple[int, int, int], generation: int, said: str) -> None:
    with pytest.raises(Corrupt, match=said):
        verify.check(memoryview(block()), "/a", row, generation)


def test_zeros_short_reads_and_other_content_are_distinguished() -> None:
    with pytest.raises(Corrupt, match="only zeros"):
        verify.check(memoryview(bytes(4096)), "/a", (0, 0, 4096))
    with pytest.raises(Corrupt, match="no header"):
        verify.check(memoryview(b"x" * 4096), "/a", (0, 0, 4096))
    with pytest.raises(Corrupt, match="only 100 bytes came"):
        verify.check(memoryview(block())[:100], "/a", (1, 8192, 4096))


def test_the_halves_of_two_generations_never_make_a_block() -> None:
    torn = block(generation=8)
    torn[512:] = block(generation=7)[512:]
    with pytest.raises(Corrupt, match="CRC32C"):
        verify.check(memoryview(torn), "/a", (1, 8192, 4096))


def test_one_operation_on_a_block_is_in_flight() -> None:
    ledger = Ledger(4, 2, 4096, base=5)
    rows = [(0, 0, 4096), (1, 4096, 4096)]
    assert ledger.take(rows) == rows and ledger.take(rows) == []
    ledger.give_back(rows[:1])
    assert ledger.take(rows) == rows[:1]


def test_the_ledger_knows_the_last_generation() -> None:
    ledger = Ledger(4, 2, 4096, base=5)
    assert ledger.expected((1, 4096, 4096)) is None
    first = ledger.next_generation((1, 4096, 4096))
    second = ledger.next_generation((1, 4096, 4096))
    assert first >> 32 == 5 and second > first and ledger.expected((1, 4096, 4096)) == second
    ledger.next_generation((0, 12288, 4096))
    assert list(ledger.written()) == [(0, 12288, 4096), (1, 4096, 4096)]
