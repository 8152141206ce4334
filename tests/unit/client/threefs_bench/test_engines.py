from pathlib import Path

import pytest
from threefs_bench.engines import measure

from threefs.errors import AlreadyExists
from threefs.kv.dump import KEYS_END
from threefs.kv.engine_url import open_engine, parse


@pytest.mark.slow
async def test_an_empty_store_is_measured_and_left_empty(tmp_path: Path) -> None:
    url = f"rocks://{tmp_path}/kv"
    rates = await measure(url, seconds=0.3)
    assert {(rate.what, rate.in_flight) for rate in rates} == {
        ("create", 1),
        ("create", 64),
        ("commit", 1),
        ("commit", 64),
        ("get", 1),
        ("get", 64),
    }
    assert all(rate.engine == url and 0 < rate.p50_ms <= rate.p99_ms for rate in rates)
    engine = await open_engine(parse(url))
    assert await engine.begin().get_range(b"", KEYS_END) == []
    tx = engine.begin()
    tx.set(b"a", b"1")
    await tx.commit()
    await engine.close()
    with pytest.raises(AlreadyExists, match="not empty"):
        await measure(url)
