"""Makes datasets of tokens from text: `threefs data prepare`."""

from threefs_data.prepare.documents import DocumentReader
from threefs_data.prepare.preparation import Output, Prepared, prepare
from threefs_data.prepare.tokenizers import ByteTokenizer, CallableTokenizer, FileTokenizer, Tokenizer

__all__ = [
    "ByteTokenizer",
    "CallableTokenizer",
    "DocumentReader",
    "FileTokenizer",
    "Output",
    "Prepared",
    "Tokenizer",
    "prepare",
]
