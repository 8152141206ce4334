from threefs_bench.cost_meter import Round, Series
from threefs_bench.smoke import GIB, MIB, Figures


def series(rate: float) -> Series:
    return Series([Round(2.0, 1.0, 2.0 * rate)])


def test_ratios_count_all_copies() -> None:
    figures = Figures(
        raw_tcp=series(4 * GIB),
        raw_unix=series(8 * GIB),
        disk=series(600 * MIB),
        disk_by="fio",
        read_1m=series(2 * GIB),
        read_4k=series(200_000),
        write_1m=series(100 * MIB),
        creates=series(6000),
        replicas=3,
    ).table()
    assert figures["read_1m_over_raw"] == 0.5
    assert figures["read_1m_over_raw_unix"] == 0.25
    assert figures["read_4k_batch_per_s"] == 200_000
    assert figures["write_1m_over_fio"] == 0.5
    assert figures["creates_per_s"] == 6000
    assert figures["read_1m_cpu_s_per_gib"] == 0.25
