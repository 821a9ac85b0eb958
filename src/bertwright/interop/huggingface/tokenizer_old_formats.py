"""Tokenizers of folders without tokenizer.json: BERT's list of tokens, and merges of byte pairs."""

from collections.abc import Callable
from pathlib import Path

import tokenizers as library
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from bertwright.errors import UserError
from bertwright.interop.huggingface.tokenizer_classes import StockClass
from bertwright.interop.huggingface.tokenizer_settings import (
    ADDED,
    read_json,
    stated_settings,
    token_text,
)
from bertwright.text.tokenizer_library import of_library, require_small_ids
from bertwright.text.tokenizers import FILE

VOCABULARY = "vocab.txt"
BYTE_VOCABULARY, MERGES = "vocab.json", "merges.txt"
WORD_END, MODEL_CONFIG = "</w>", "config.json"


def read_old_files(folder: Path, kind: StockClass | None) -> library.Tokenizer:
    for files, build in OLD_FORMATS.items():
        if all((folder / name).is_file() for name in files) and (
            kind is None or kind.files == files
        ):
            try:
                return _with_added(build(folder), folder)
            except BaseException as error:
                if not of_library(error):
                    raise
                raise UserError(f"{folder / files[0]} is not a vocabulary: {error}") from None
    raise UserError(
        f"{folder} holds no tokenizer: it needs {FILE}, {VOCABULARY}, or {BYTE_VOCABULARY} "
        f"with {MERGES}"
    )


def _from_vocabulary(folder: Path) -> library.Tokenizer:
    """BERT's WordPiece, from its list of pieces."""
    lines = (folder / VOCABULARY).read_text(encoding="utf-8").split("\n")
    vocabulary = {
        piece: index for index, piece in enumerate(lines) if piece or index + 1 < len(lines)
    }
    config = read_json(folder)
    unknown = token_text(stated_settings(folder).get("unk_token")) or "[UNK]"
    backend = library.Tokenizer(models.WordPiece(vocabulary, unk_token=unknown))
    backend.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=config.get("tokenize_chinese_chars", True),
        strip_accents=config.get("strip_accents"),
        lowercase=config.get("do_lower_case", True),
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    return _with_specials(backend, ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])


def _from_merges(folder: Path) -> library.Tokenizer:
    """RoBERTa's byte-pair encoding, or that of GPT, from its pieces and merges."""
    pieces: dict[str, int] = read_json(folder, BYTE_VOCABULARY)
    require_small_ids(iter(pieces.values()), folder / BYTE_VOCABULARY)
    given = str(folder / BYTE_VOCABULARY), str(folder / MERGES)
    if any(piece.endswith(WORD_END) for piece in pieces):
        return _of_words(folder, *given)
    backend = library.Tokenizer(models.BPE.from_file(*given))
    space = read_json(folder).get("add_prefix_space", False)
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=space)
    backend.decoder = decoders.ByteLevel()
    start, end = backend.token_to_id("<s>"), backend.token_to_id("</s>")
    if start is not None and end is not None:
        backend.post_processor = processors.RobertaProcessing(
            ("</s>", end), ("<s>", start), add_prefix_space=space
        )
    mask = library.AddedToken("<mask>", lstrip=True, normalized=False, special=True)
    return _with_specials(backend, ["<s>", "<pad>", "</s>", "<unk>", mask])


def _of_words(folder: Path, pieces: str, merges: str) -> library.Tokenizer:
    """GPT's pieces, of which the last of a word says so."""
    if read_json(folder, MODEL_CONFIG).get("model_type") == "xlm":
        raise UserError(
            f"{folder}: words of XLM are found by Moses, which is not here: save its tokenizer as "
            f"{FILE}"
        )
    model = models.BPE.from_file(pieces, merges, unk_token="<unk>", end_of_word_suffix=WORD_END)
    backend = library.Tokenizer(model)
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.BPEDecoder(suffix=WORD_END)
    return _with_specials(backend, ["<unk>"])


def _with_specials(
    backend: library.Tokenizer, names: list[str | library.AddedToken]
) -> library.Tokenizer:
    """The tokenizer knowing which of its pieces are special; none is added."""
    backend.add_special_tokens([n for n in names if backend.token_to_id(str(n)) is not None])
    return backend


def _with_added(backend: library.Tokenizer, folder: Path) -> library.Tokenizer:
    """The tokenizer with the pieces that were added to it later, at their numbers."""
    added: dict[str, int] = read_json(folder, ADDED)
    require_small_ids(iter(added.values()), folder / ADDED)
    for piece, number in sorted(added.items(), key=lambda each: each[1]):
        if backend.token_to_id(piece) is None:
            backend.add_tokens([library.AddedToken(piece, normalized=False)])
        if backend.token_to_id(piece) != number:
            raise UserError(
                f"{folder / ADDED}: {piece!r} is number {number}, and behind the vocabulary it is "
                f"{backend.token_to_id(piece)}: save the tokenizer as {FILE}"
            )
    return backend


OLD_FORMATS: dict[tuple[str, ...], Callable[[Path], library.Tokenizer]] = {
    (VOCABULARY,): _from_vocabulary,
    (BYTE_VOCABULARY, MERGES): _from_merges,
}
