import re
from pathlib import Path

import pytest
from threefs_fuse import protocol

HEADER = Path("/usr/include/linux/fuse.h")

pytestmark = pytest.mark.skipif(not HEADER.exists(), reason=f"there is no {HEADER} to compare with")


def test_operations_have_the_kernels_numbers() -> None:
    text = HEADER.read_text()
    for operation in protocol.Op:
        found = re.search(rf"\bFUSE_{operation.name}\s*=\s*(\d+)", text)
        assert found is None or int(found[1]) == operation, operation  # an old header may lack the newest


def test_flags_have_the_kernels_values() -> None:
    text = HEADER.read_text()
    names: list[tuple[str, int]] = [(f"FUSE_{flag.name}", flag) for flag in protocol.Feature]
    names += [(f"FATTR_{flag.name}", flag) for flag in protocol.Changed]
    names += [(f"FOPEN_{flag.name}", flag) for flag in protocol.OpenFlag]
    seen = 0
    for name, flag in names:
        found = re.search(rf"#define {name}\s+\(1(?:ULL)? << (\d+)\)", text)
        if found is not None:
            seen += 1
            assert 1 << int(found[1]) == flag, name
    assert seen > 30
