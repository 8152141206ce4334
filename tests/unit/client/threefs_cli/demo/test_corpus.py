import numpy as np
from threefs_cli.demo import corpus


def test_the_standard_library_has_thousands_of_lines_of_real_input() -> None:
    files = corpus.standard_library()
    assert len(files) > 500
    assert b"class JSONDecoder" in files["json/decoder.py"]
    assert not any("__pycache__" in name or name.startswith("site-packages/") for name in files)


def test_tokens_are_the_bytes_of_the_files_in_whole_samples() -> None:
    size = corpus.SAMPLE_TOKENS
    rows = corpus.tokens({"a": b"\x00\xff" * (size // 2), "b": b"bb", "c": b"c" * size})
    assert rows.shape == (2, size) and rows.dtype == np.uint16
    assert rows[0].tolist() == [0, 255] * (size // 2)
    assert rows[1][:4].tolist() == [256, ord("b"), ord("b"), 256]
    assert corpus.tokens({}).shape == (0, size)
