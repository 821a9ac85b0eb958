"""Writing a tokenizer as Hugging Face folders hold it."""

import json
from pathlib import Path
from typing import Any

import tokenizers as library
from tokenizers import models, processors

from bertwright.interop.huggingface.tokenizer_classes import CONFIG
from bertwright.interop.huggingface.tokenizer_old_formats import VOCABULARY
from bertwright.text.tokenizers import FILE, Tokenizer

FRAMING = ("TemplateProcessing", "BertProcessing", "RobertaProcessing")
"""The post-processors that put special pieces around a text."""


def write_tokenizer(
    folder: Path,
    tokenizer: Tokenizer,
    segments: bool,
    longest: int,
    separators: int = 1,
    opening: int | None = None,
) -> None:
    """Write tokenizer.json, tokenizer_config.json and, for WordPiece, vocab.txt.

    ``segments`` says whether the model tells the two texts of a pair apart, and ``separators`` how
    many pieces stand between them; ``longest`` is the number of pieces in its longest row. A model
    that reads on is given texts that are not ended, behind the piece ``opening``.
    """
    framed = _framed(tokenizer, separators, segments, opening)
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
        (folder / VOCABULARY).write_text(_vocabulary_lines(tokenizer), encoding="utf-8")


def _vocabulary_lines(tokenizer: Tokenizer) -> str:
    """A line for every id. Of two equal lines the last one counts, so a line for an id without a
    token repeats the next token."""
    lines: list[str] = []
    for index in tokenizer.ids.tolist():
        lines += [tokenizer.piece(index)] * (index + 1 - len(lines))
    return "".join(f"{line}\n" for line in lines)


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


def _framed(
    tokenizer: Tokenizer, separators: int, segments: bool, opening: int | None
) -> library.Tokenizer:
    """The tokenizer with special pieces around its texts: as the model was trained, where it was
    made here or has none, else as it came with them."""
    backend = library.Tokenizer.from_str(tokenizer.backend.to_str())
    processor = tokenizer.settings["post_processor"]
    frame = _frame(tokenizer, separators, segments)
    if opening is not None:
        frame = _opened(tokenizer, opening)
    like_roberta = processor == _settings(_frame(tokenizer, 2, False))
    like_bert = processor == _settings(_frame(tokenizer, 1, True))
    if tokenizer.roles:
        return backend  # of a published model, as it came with it
    other = opening is not None or segments or separators != 2
    if (like_roberta and other) or (like_bert and (opening is not None or separators != 1)):
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


def _opened(tokenizer: Tokenizer, opening: int) -> Any:
    """A text behind one piece; a second one goes on with the first."""
    piece = tokenizer.piece(opening)
    return processors.TemplateProcessing(
        single=f"{piece} $A", pair=f"{piece} $A $B", special_tokens=[(piece, opening)]
    )


def _settings(processor: Any) -> Any:
    """A processor as the file of a tokenizer states it."""
    bare = library.Tokenizer(models.WordLevel({}, unk_token=""))
    bare.post_processor = processor
    return json.loads(bare.to_str())["post_processor"]
