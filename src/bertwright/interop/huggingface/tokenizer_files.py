"""Tokenizers as Hugging Face folders hold them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tokenizers as library
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from bertwright.errors import UserError
from bertwright.text.tokenizers import FILE, Tokenizer

CONFIG, VOCABULARY = "tokenizer_config.json", "vocab.txt"
BYTE_VOCABULARY, MERGES = "vocab.json", "merges.txt"
FRAMING = ("TemplateProcessing", "BertProcessing", "RobertaProcessing")
"""The post-processors that put special pieces around a text."""


def read_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a folder, from tokenizer.json or from the files of older days.

    Errors: UserError where the folder has none.
    """
    if (folder / FILE).is_file():
        return Tokenizer.load(folder)
    for files, build in OLD_FORMATS.items():
        if all((folder / name).is_file() for name in files):
            return Tokenizer(build(folder))
    raise UserError(
        f"{folder} holds no tokenizer: it needs {FILE}, {VOCABULARY}, or {BYTE_VOCABULARY} "
        f"with {MERGES}"
    )


def write_tokenizer(
    folder: Path, tokenizer: Tokenizer, segments: bool, longest: int, separators: int = 1
) -> None:
    """Write tokenizer.json, tokenizer_config.json and, for WordPiece, vocab.txt.

    ``segments`` says whether the model tells the two texts of a pair apart, and ``separators`` how
    many pieces stand between them; ``longest`` is the number of pieces in its longest row.
    """
    framed = _framed(tokenizer, separators, segments)
    framed.save(str(folder / FILE))
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    if not segments:
        inputs.remove("token_type_ids")
    specials = tokenizer.specials
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": longest,
        "model_input_names": inputs,
        "unk_token": tokenizer.piece(specials.unknown),
        "pad_token": tokenizer.piece(specials.pad),
        "cls_token": tokenizer.piece(specials.start),
        "sep_token": tokenizer.piece(specials.end),
        "mask_token": tokenizer.piece(specials.mask),
        **_bert_class(json.loads(framed.to_str()), segments),
    }
    (folder / CONFIG).write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n")
    if tokenizer.kind == "wordpiece":
        lines = "".join(f"{tokenizer.piece(index)}\n" for index in range(tokenizer.size))
        (folder / VOCABULARY).write_text(lines, encoding="utf-8")


def _bert_class(settings: dict[str, Any], segments: bool) -> dict[str, Any]:
    """How ``BertTokenizer`` is configured to do the same, or nothing where it cannot.

    That class does not read tokenizer.json but builds its own: it is named only where the two are
    the same.
    """
    model, normaliser = settings["model"], settings["normalizer"] or {}
    same = (
        segments
        and model["type"] == "WordPiece"
        and (model["continuing_subword_prefix"], model["unk_token"]) == ("##", "[UNK]")
        and model["max_input_chars_per_word"] == 100
        and normaliser.get("type") == "BertNormalizer"
        and normaliser["clean_text"]
        and settings["pre_tokenizer"] == {"type": "BertPreTokenizer"}
        and all(token["special"] for token in settings["added_tokens"])
    )
    if not same:
        return {}
    return {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": normaliser["lowercase"],
        "strip_accents": normaliser["strip_accents"],
        "tokenize_chinese_chars": normaliser["handle_chinese_chars"],
    }


def _framed(tokenizer: Tokenizer, separators: int, segments: bool) -> library.Tokenizer:
    """The tokenizer with special pieces around its texts: as the model was trained, where it was
    made here or has none, else as it came with them."""
    backend = library.Tokenizer.from_str(tokenizer.backend.to_str())
    processor = tokenizer.settings["post_processor"]
    frame = _frame(tokenizer, separators, segments)
    like_roberta = processor == _settings(_frame(tokenizer, 2, False))
    like_bert = processor == _settings(_frame(tokenizer, 1, True))
    if (like_roberta and (segments or separators != 2)) or (like_bert and separators != 1):
        backend.post_processor = frame
        return backend
    if any(kind in json.dumps(processor) for kind in FRAMING):
        return backend
    backend.post_processor = (
        frame if processor is None else processors.Sequence([backend.post_processor, frame])
    )
    return backend


def _frame(tokenizer: Tokenizer, separators: int, segments: bool) -> Any:
    ids = tokenizer.specials.start, tokenizer.specials.end
    start, end = map(tokenizer.piece, ids)
    of_second = int(segments)
    between = " ".join([f"{end}:0"] * separators)
    return processors.TemplateProcessing(
        single=f"{start}:0 $A:0 {end}:0",
        pair=f"{start}:0 $A:0 {between} $B:{of_second} {end}:{of_second}",
        special_tokens=[(start, ids[0]), (end, ids[1])],
    )


def _settings(processor: Any) -> Any:
    """A processor as the file of a tokenizer states it."""
    bare = library.Tokenizer(models.WordLevel({}, unk_token=""))
    bare.post_processor = processor
    return json.loads(bare.to_str())["post_processor"]


def _from_vocabulary(folder: Path) -> library.Tokenizer:
    """BERT's WordPiece, from its list of pieces."""
    lines = (folder / VOCABULARY).read_text(encoding="utf-8").split("\n")
    vocabulary = {
        piece: index for index, piece in enumerate(lines) if piece or index + 1 < len(lines)
    }
    config = _config(folder)
    backend = library.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
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
    """RoBERTa's byte-pair encoding, from its pieces and merges."""
    model = models.BPE.from_file(str(folder / BYTE_VOCABULARY), str(folder / MERGES))
    backend = library.Tokenizer(model)
    space = _config(folder).get("add_prefix_space", False)
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=space)
    backend.decoder = decoders.ByteLevel()
    start, end = backend.token_to_id("<s>"), backend.token_to_id("</s>")
    if start is not None and end is not None:
        backend.post_processor = processors.RobertaProcessing(
            ("</s>", end), ("<s>", start), add_prefix_space=space
        )
    mask = library.AddedToken("<mask>", lstrip=True, normalized=False, special=True)
    return _with_specials(backend, ["<s>", "<pad>", "</s>", "<unk>", mask])


def _with_specials(
    backend: library.Tokenizer, names: list[str | library.AddedToken]
) -> library.Tokenizer:
    """The tokenizer knowing which of its pieces are special; none is added."""
    backend.add_special_tokens([n for n in names if backend.token_to_id(str(n)) is not None])
    return backend


def _config(folder: Path) -> dict[str, Any]:
    file = folder / CONFIG
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


OLD_FORMATS: dict[tuple[str, ...], Callable[[Path], library.Tokenizer]] = {
    (VOCABULARY,): _from_vocabulary,
    (BYTE_VOCABULARY, MERGES): _from_merges,
}
