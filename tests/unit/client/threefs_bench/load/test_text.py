from threefs_bench.load import fio_report, job_file, text
from threefs_bench.load.runner import Run
from threefs_bench.load.tally import Result, Spread, Tally


def shown(options: str, result: Result) -> str:
    jobs = job_file.parse_text(f"[a]\n{options}", "x")
    return "\n".join(text.lines(fio_report.entries(jobs, Run([[result]])), [{"storage": 2.0}]))


def test_the_lines_are_those_of_fio() -> None:
    tally = Tally()
    for number in range(100):
        tally.add("read", 1.0, 1.0 + (number + 1) * 1e-4, 1, 1 << 20)
    tally.add("sync", 1.0, 1.1, 1, 0)
    tally.short("read", 1.0)
    result = Result(runtime_ms=1000.0, process_ms=1000.0, user_s=0.5, system_s=0.1)
    result.add_tally(tally)
    result.bandwidth["read"] = result.rates["read"] = Spread(2, 200.0, 20000.0, 100.0, 100.0)
    found = shown("size=100m\nbs=1m", result)
    assert "a: (groupid=0, jobs=1): err= 0" in found
    assert "  read: IOPS=100, BW=100.0MiB/s (104.9MB/s)(100.0MiB/1000msec)" in found
    assert "    clat (usec): min=100.0, max=10000.0, avg=5050.00" in found
    assert "50.00th=[" in found and "99.99th=[" in found and "short: 1 transferred less" in found
    assert "cpu          : usr=50.00%, sys=10.00%" in found and "sync: 1, lat (msec)" in found
    assert "cost         : 0.60 CPU seconds, 6.14 per GiB, 6.000 per 1000 operations" in found
    assert "Run status group 0 (all jobs):" in found and "   READ: bw=100.0MiB/s" in found
    assert "services on this host, storage: 2.00 CPU seconds, 20.48 per GiB" in found


def test_names_have_a_line_for_each_operation() -> None:
    tally = Tally()
    tally.add("create", 1.0, 1.001, 1, 0)
    tally.add("stat", 1.0, 1.001, 1, 0)
    result = Result(runtime_ms=500.0, process_ms=500.0)
    result.add_tally(tally)
    found = shown("ioengine=meta\nmetaop=create/50:stat/50", result)
    assert "  create: 2/s, lat (usec): min=1000.0" in found and "  stat: 2/s" in found


def test_an_error_is_reported_in_words() -> None:
    found = shown("size=1m", Result(errno=5, error="Corrupt: /a: block at offset 7"))
    assert "err= 5 (Corrupt: /a: block at offset 7)" in found
