import json
import pickle
from importlib.util import find_spec
from pathlib import Path

import pytest
from threefs_data.prepare import tokenizers
from threefs_data.prepare.tokenizers import ByteTokenizer, CallableTokenizer, FileTokenizer, Tokenizer

from threefs.errors import InvalidArgument, NotFound, NotSupported


def lengths_of_words(text: str) -> list[int]:
    return [len(word) for word in text.split()]


def test_a_byte_is_a_token() -> None:
    tokenizer = tokenizers.named("bytes")
    assert isinstance(tokenizer, ByteTokenizer) and isinstance(tokenizer, Tokenizer)
    assert tokenizer.encode("aé".encode()).tolist() == [97, 0xC3, 0xA9]


def test_any_function_is_a_tokenizer() -> None:
    tokenizer = tokenizers.of(lengths_of_words)
    assert tokenizer.encode(b"one three").tolist() == [3, 5]
    assert tokenizer.encode(b"").tolist() == []
    assert tokenizer.name.endswith(":lengths_of_words") and tokenizer.vocabulary == 0
    own = CallableTokenizer(lengths_of_words, "mine", 100)
    assert tokenizers.of(own) is own


def test_a_function_is_found_by_its_name() -> None:
    tokenizer = tokenizers.named("textwrap:wrap")
    assert tokenizer.name == "textwrap:wrap"


@pytest.mark.parametrize("name", ["words", "no_such_module:f", "textwrap:no_such_function"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidArgument, match=name):
        tokenizers.named(name)


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(NotFound, match=r"/nowhere/tokenizer\.json"):
        tokenizers.named("/nowhere/tokenizer.json")


def word_level(path: Path, words: list[str]) -> str:
    """A file of the package tokenizers, in its published format."""
    vocabulary = {word: number for number, word in enumerate(["[UNK]", *words])}
    model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"}
    path.write_text(json.dumps({"version": "1.0", "pre_tokenizer": {"type": "Whitespace"}, "model": model}))
    return str(path)


@pytest.mark.slow
def test_a_file_of_the_package_tokenizers(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers", reason="tokenizers is not installed (make ml-venv)")
    first = FileTokenizer(word_level(tmp_path / "a.json", ["one", "two"]))
    assert first.encode(b"two one three").tolist() == [2, 1, 0] and first.vocabulary == 3
    copy = pickle.loads(pickle.dumps(first))  # noqa: S301
    assert copy.encode(b"two").tolist() == [2] and copy.name == first.name
    assert FileTokenizer(word_level(tmp_path / "b.json", ["other"])).name != first.name
    other = FileTokenizer(word_level(tmp_path / "d.json", ["one"]))
    word_level(tmp_path / "d.json", ["another"])
    tokenizers._load.cache_clear()  # as in a worker, which starts later
    with pytest.raises(InvalidArgument, match=r"d\.json has changed since the work began"):
        other.encode(b"one")
    (tmp_path / "c.json").write_text("{}")
    with pytest.raises(InvalidArgument, match=r"c\.json is not a file of the package tokenizers"):
        FileTokenizer(str(tmp_path / "c.json"))


def test_without_the_package(tmp_path: Path) -> None:
    if find_spec("tokenizers"):
        pytest.skip("tokenizers is installed")
    with pytest.raises(NotSupported, match="pip install"):
        FileTokenizer(word_level(tmp_path / "a.json", ["one"]))
