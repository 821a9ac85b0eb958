"""Write a tokenizer for Hugging Face folders."""

import json
from pathlib import Path
from typing import Any

import tokenizers as library
from tokenizers import models, processors

from bertwright.batches.formats import InputFormat
from bertwright.data.tokenization.tokenizer import TOKENIZER_FILE, Tokenizer
from bertwright.interop.huggingface.tokenizer.legacy import VOCAB_FILE
from bertwright.interop.huggingface.tokenizer.stock_class import TOKENIZER_CONFIG_FILE

SPECIAL_TOKEN_PROCESSORS = ("TemplateProcessing", "BertProcessing", "RobertaProcessing")
"""Post-processors that add special tokens."""


def write_tokenizer(
    folder: Path,
    tokenizer: Tokenizer,
    input_format: InputFormat,
    has_segments: bool,
    max_length: int,
    num_separators: int = 1,
    bos_token_id: int | None = None,
) -> None:
    """Write tokenizer.json, tokenizer_config.json and, for WordPiece, vocab.txt.

    ``num_separators`` is the number of separators between the texts of a pair. ``bos_token_id`` is
    for causal models: texts then begin with that token and have no end token.
    """
    specials = tokenizer.special_tokens
    is_last = input_format.ends_with_start_token
    start_id = specials.start if is_last else input_format.start_token(specials)
    template = (
        _bos_template(tokenizer, bos_token_id)
        if bos_token_id is not None
        else _pair_template(tokenizer, start_id, num_separators, has_segments, is_last)
    )
    is_usual = bos_token_id is None and not is_last and start_id == specials.start
    backend = _with_post_processor(tokenizer, template, num_separators, has_segments, is_usual)
    backend.save(str(folder / TOKENIZER_FILE))
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    if not has_segments:
        inputs.remove("token_type_ids")
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_length,
        "model_input_names": inputs,
        "unk_token": tokenizer.id_to_token(specials.unknown),
        "pad_token": tokenizer.id_to_token(specials.pad),
        "cls_token": tokenizer.id_to_token(specials.start),
        "sep_token": tokenizer.id_to_token(specials.end),
        "mask_token": tokenizer.id_to_token(specials.mask),
        **_bert_tokenizer_config(json.loads(backend.to_str()), has_segments and is_usual),
    }
    (folder / TOKENIZER_CONFIG_FILE).write_text(
        json.dumps(config, indent=2, ensure_ascii=False) + "\n"
    )
    if tokenizer.kind == "wordpiece":
        (folder / VOCAB_FILE).write_text(_vocab_lines(tokenizer), encoding="utf-8")


def set_special_token_positions(
    folder: Path, tokenizer: Tokenizer, input_format: InputFormat
) -> None:
    """Make the tokenizer of a folder write texts with special tokens as ``embed`` does.

    Stock causal models, and some published tokenizers, write other special tokens.
    """
    file = folder / TOKENIZER_FILE
    backend, ids = library.Tokenizer.from_file(str(file)), tokenizer.special_tokens
    special_ids = input_format.add_special_tokens([], ids)
    if backend.encode("").ids == special_ids:
        return
    first, second = map(tokenizer.id_to_token, special_ids)
    is_last = input_format.ends_with_start_token
    backend.post_processor = processors.TemplateProcessing(
        single=f"$A {first} {second}" if is_last else f"{first} $A {second}",
        special_tokens=[*{first: special_ids[0], second: special_ids[1]}.items()],
    )
    backend.save(str(file))


def _vocab_lines(tokenizer: Tokenizer) -> str:
    """Return a line for every id.

    Of equal lines the last one counts, so the line of an unused id repeats the next token.
    """
    lines: list[str] = []
    for index in tokenizer.ids.tolist():
        lines += [tokenizer.id_to_token(index)] * (index + 1 - len(lines))
    return "".join(f"{line}\n" for line in lines)


def _bert_tokenizer_config(tokenizer_json: dict[str, Any], has_bert_format: bool) -> dict[str, Any]:
    """Return the config of an equivalent ``BertTokenizer``; empty if there is none.

    ``has_bert_format`` is True for [CLS] A [SEP] B [SEP] with segments. That class ignores
    tokenizer.json, so it is only named if it is equivalent.
    """
    model, normaliser = tokenizer_json["model"], tokenizer_json["normalizer"] or {}
    is_equivalent = (
        has_bert_format
        and model["type"] == "WordPiece"
        and (model["continuing_subword_prefix"], model["unk_token"]) == ("##", "[UNK]")
        and model["max_input_chars_per_word"] == 100
        and normaliser.get("type") == "BertNormalizer"
        and normaliser["clean_text"]
        and tokenizer_json["pre_tokenizer"] == {"type": "BertPreTokenizer"}
        and all(token["special"] for token in tokenizer_json["added_tokens"])
    )
    if not is_equivalent:
        return {}
    return {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": normaliser["lowercase"],
        "strip_accents": normaliser["strip_accents"],
        "tokenize_chinese_chars": normaliser["handle_chinese_chars"],
    }


def _with_post_processor(
    tokenizer: Tokenizer, template: Any, num_separators: int, has_segments: bool, is_usual: bool
) -> library.Tokenizer:
    """Return the tokenizer with special tokens around texts.

    The post-processor ``template`` adds the same tokens as in training; a published tokenizer keeps
    its own, and an equivalent one stays if special tokens have their usual positions.
    """
    backend = library.Tokenizer.from_str(tokenizer.backend.to_str())
    processor, start_id = tokenizer.settings["post_processor"], tokenizer.special_tokens.start
    like_roberta = processor == _processor_json(_pair_template(tokenizer, start_id, 2, False))
    like_bert = processor == _processor_json(_pair_template(tokenizer, start_id, 1, True))
    if tokenizer.roles:
        return backend  # a published tokenizer keeps its post-processor
    differs = not is_usual or has_segments or num_separators != 2
    if (like_roberta and differs) or (like_bert and (not is_usual or num_separators != 1)):
        backend.post_processor = template
        return backend
    if any(name in json.dumps(processor) for name in SPECIAL_TOKEN_PROCESSORS):
        return backend
    backend.post_processor = (
        template if processor is None else processors.Sequence([backend.post_processor, template])
    )
    return backend


def _pair_template(
    tokenizer: Tokenizer,
    start_id: int,
    num_separators: int,
    has_segments: bool,
    ends_with_start_token: bool = False,
) -> Any:
    end_id = tokenizer.special_tokens.end
    start, end = tokenizer.id_to_token(start_id), tokenizer.id_to_token(end_id)
    second_id = int(has_segments)
    separators = " ".join([f"{end}:0"] * num_separators)
    single, pair = f"$A:0 {end}:0", f"$A:0 {separators} $B:{second_id} {end}:{second_id}"
    return processors.TemplateProcessing(
        single=f"{single} {start}:0" if ends_with_start_token else f"{start}:0 {single}",
        pair=f"{pair} {start}:{second_id}" if ends_with_start_token else f"{start}:0 {pair}",
        special_tokens=[*{start: start_id, end: end_id}.items()],
    )


def _bos_template(tokenizer: Tokenizer, bos_token_id: int) -> Any:
    """Return a template with one token before a text; a second text is appended to the first."""
    token = tokenizer.id_to_token(bos_token_id)
    return processors.TemplateProcessing(
        single=f"{token} $A", pair=f"{token} $A $B", special_tokens=[(token, bos_token_id)]
    )


def _processor_json(processor: Any) -> Any:
    """Return a processor in the form of tokenizer.json."""
    bare = library.Tokenizer(models.WordLevel({}, unk_token=""))
    bare.post_processor = processor
    return json.loads(bare.to_str())["post_processor"]
