"""Read tokenizers without tokenizer.json: WordPiece from vocab.txt, BPE from merges.txt."""

from collections.abc import Callable
from pathlib import Path

import tokenizers as library
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from bertwright.core.errors import UserError
from bertwright.data.tokenization.backend import is_library_error, require_small_ids
from bertwright.data.tokenization.tokenizer import TOKENIZER_FILE
from bertwright.interop.huggingface import CONFIG_FILE
from bertwright.interop.huggingface.tokenizer.settings import (
    ADDED_TOKENS_FILE,
    read_json_file,
    read_tokenizer_settings,
    token_text,
)
from bertwright.interop.huggingface.tokenizer.stock_class import StockTokenizerClass

VOCAB_FILE = "vocab.txt"
VOCAB_JSON_FILE, MERGES_FILE = "vocab.json", "merges.txt"
END_OF_WORD_SUFFIX = "</w>"


def read_legacy_files(folder: Path, stock_class: StockTokenizerClass | None) -> library.Tokenizer:
    """Return the tokenizer from the first complete set of files; UserError if none is complete."""
    for files, build in LEGACY_READERS.items():
        if all((folder / name).is_file() for name in files) and (
            stock_class is None or stock_class.files == files
        ):
            try:
                return _append_added_tokens(build(folder), folder)
            except BaseException as error:
                if not is_library_error(error):
                    raise
                raise UserError(f"{folder / files[0]} is not a vocabulary: {error}") from None
    raise UserError(
        f"{folder} holds no tokenizer: it needs {TOKENIZER_FILE}, {VOCAB_FILE}, or "
        f"{VOCAB_JSON_FILE} with {MERGES_FILE}"
    )


def _read_wordpiece(folder: Path) -> library.Tokenizer:
    """Read BERT's WordPiece."""
    lines = (folder / VOCAB_FILE).read_text(encoding="utf-8").split("\n")
    vocabulary = {
        token: index for index, token in enumerate(lines) if token or index + 1 < len(lines)
    }
    config = read_json_file(folder)
    unknown = token_text(read_tokenizer_settings(folder).get("unk_token")) or "[UNK]"
    backend = library.Tokenizer(models.WordPiece(vocabulary, unk_token=unknown))
    backend.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=config.get("tokenize_chinese_chars", True),
        strip_accents=config.get("strip_accents"),
        lowercase=config.get("do_lower_case", True),
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    return _mark_special_tokens(backend, ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])


def _read_byte_bpe(folder: Path) -> library.Tokenizer:
    """Read byte-level BPE as in RoBERTa and GPT-2, or GPT's BPE."""
    vocabulary: dict[str, int] = read_json_file(folder, VOCAB_JSON_FILE)
    require_small_ids(iter(vocabulary.values()), folder / VOCAB_JSON_FILE)
    files = str(folder / VOCAB_JSON_FILE), str(folder / MERGES_FILE)
    if any(token.endswith(END_OF_WORD_SUFFIX) for token in vocabulary):
        return _read_word_bpe(folder, *files)
    backend = library.Tokenizer(models.BPE.from_file(*files))
    space = read_json_file(folder).get("add_prefix_space", False)
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=space)
    backend.decoder = decoders.ByteLevel()
    start, end = backend.token_to_id("<s>"), backend.token_to_id("</s>")
    if start is not None and end is not None:
        backend.post_processor = processors.RobertaProcessing(
            ("</s>", end), ("<s>", start), add_prefix_space=space
        )
    mask = library.AddedToken("<mask>", lstrip=True, normalized=False, special=True)
    return _mark_special_tokens(backend, ["<s>", "<pad>", "</s>", "<unk>", mask])


def _read_word_bpe(folder: Path, vocab_file: str, merges_file: str) -> library.Tokenizer:
    """Read GPT's BPE, which marks the last token of a word."""
    if read_json_file(folder, CONFIG_FILE).get("model_type") == "xlm":
        raise UserError(
            f"{folder}: XLM's tokenizer needs Moses, which is not supported: save it as "
            f"{TOKENIZER_FILE}"
        )
    model = models.BPE.from_file(
        vocab_file, merges_file, unk_token="<unk>", end_of_word_suffix=END_OF_WORD_SUFFIX
    )
    backend = library.Tokenizer(model)
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.BPEDecoder(suffix=END_OF_WORD_SUFFIX)
    return _mark_special_tokens(backend, ["<unk>"])


def _mark_special_tokens(
    backend: library.Tokenizer, tokens: list[str | library.AddedToken]
) -> library.Tokenizer:
    """Mark tokens as special if they are in the vocabulary."""
    backend.add_special_tokens([n for n in tokens if backend.token_to_id(str(n)) is not None])
    return backend


def _append_added_tokens(backend: library.Tokenizer, folder: Path) -> library.Tokenizer:
    """Add the tokens of added_tokens.json; UserError if there are gaps between ids."""
    added: dict[str, int] = read_json_file(folder, ADDED_TOKENS_FILE)
    require_small_ids(iter(added.values()), folder / ADDED_TOKENS_FILE)
    for token, token_id in sorted(added.items(), key=lambda item: item[1]):
        if backend.token_to_id(token) is None:
            backend.add_tokens([library.AddedToken(token, normalized=False)])
        if backend.token_to_id(token) != token_id:
            raise UserError(
                f"{folder / ADDED_TOKENS_FILE}: {token!r} has the id {token_id}, and appended to "
                f"the vocabulary {backend.token_to_id(token)}: save the tokenizer as "
                f"{TOKENIZER_FILE}"
            )
    return backend


LEGACY_READERS: dict[tuple[str, ...], Callable[[Path], library.Tokenizer]] = {
    (VOCAB_FILE,): _read_wordpiece,
    (VOCAB_JSON_FILE, MERGES_FILE): _read_byte_bpe,
}
