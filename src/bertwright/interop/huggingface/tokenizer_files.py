"""Tokenizers as Hugging Face folders hold them."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tokenizers as library
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from bertwright.axes import quoted
from bertwright.errors import UserError
from bertwright.files import parse_json, read_text
from bertwright.interop.huggingface.tokenizer_checks import (
    know_named,
    require_added,
    require_ids,
    require_stated,
    require_usual,
    tokens_by_id,
)
from bertwright.interop.huggingface.tokenizer_classes import (
    CLASSES,
    CONFIG,
    Contradiction,
    StockClass,
    class_name,
    conform,
    stock_class,
)
from bertwright.text.tokenizer_library import of_library, read_backend, require_small_ids
from bertwright.text.tokenizers import FILE, SPECIAL_NAMES, Tokenizer

VOCABULARY = "vocab.txt"
SPECIALS, ADDED = "special_tokens_map.json", "added_tokens.json"
BYTE_VOCABULARY, MERGES = "vocab.json", "merges.txt"
WORD_END, MODEL_CONFIG = "</w>", "config.json"
NO_LIMIT = int(1e30)
"""How stock tokenizers write that a row may have any length."""

FRAMING = ("TemplateProcessing", "BertProcessing", "RobertaProcessing")
"""The post-processors that put special pieces around a text."""


def read_tokenizer(
    folder: Path, model_config: Mapping[str, Any], own_roles: Mapping[str, str]
) -> Tokenizer:
    """The tokenizer of a folder, from tokenizer.json or from the files of older days.

    Text is split as Transformers splits it. The special tokens are those that the folder names, or
    the configuration of its model, or those that its family has under ``own_roles``.

    Errors: UserError where the folder has none, for a class that is not understood, and where its
    files contradict each other.
    """
    config = read_json(folder)
    name = class_name(folder, config, model_config)
    kind = stock_class(folder, name)
    if config.get("split_special_tokens"):
        raise UserError(
            f"{folder / CONFIG}: split_special_tokens is true, which is not read: set it to false"
        )
    if (folder / FILE).is_file():
        backend = _from_file(folder, name, config, model_config)
    else:
        backend = _from_old_files(folder, kind)
    know_named(backend, _named(folder), folder)
    try:
        return Tokenizer(backend, _roles(backend, folder, model_config, own_roles))
    except UserError as error:
        raise UserError(f"{folder}: {error}") from None


def longest_row(folder: Path) -> int | None:
    """The longest row that the tokenizer of a folder states; None where it states none."""
    stated = read_json(folder).get("model_max_length")
    return int(stated) if stated is not None and 0 < stated < NO_LIMIT else None


def _from_file(
    folder: Path, name: str, config: Mapping[str, Any], model_config: Mapping[str, Any]
) -> library.Tokenizer:
    """The tokenizer of tokenizer.json as the class of this name reads it."""
    file = folder / FILE
    backend = read_backend(file)
    require_ids(backend, read_json(folder, FILE).get("added_tokens", []), file)
    settings = json.loads(backend.to_str())
    if name in CLASSES:
        before = json.dumps(settings)
        try:
            conform(settings, name, config)
        except Contradiction as error:
            raise UserError(f"{file} contradicts {name}: {error}") from None
        if json.dumps(settings) != before:
            backend = library.Tokenizer.from_str(json.dumps(settings))
    elif not name:
        require_usual(settings, file, str(model_config.get("model_type")))
    named = {token for _, token, _ in _named(folder)}
    if "added_tokens_decoder" in config:
        origin = f"added_tokens_decoder of {folder / CONFIG}"
        stated = tokens_by_id(config["added_tokens_decoder"], origin)
        require_added(backend, stated, origin)
        if name in CLASSES:
            require_stated(backend, stated, named, file)
    else:
        listed: dict[str, int] = read_json(folder, ADDED)
        added = {number: {"content": token} for token, number in listed.items()}
        require_added(backend, added, str(folder / ADDED))
    return backend


def _named(folder: Path) -> list[tuple[str, str, bool]]:
    """The special tokens that the files of a tokenizer name: the key, the token, and whether a
    space before it belongs to it."""
    found: list[tuple[str, str, bool]] = []
    for key, value in _stated(folder).items():
        values: list[Any] = value if key in LISTS and isinstance(value, list) else [value]
        if key in LISTS or key in KEYS:
            for one in values:
                token = _written(one)
                strips = isinstance(one, dict) and bool(one.get("lstrip"))
                found += [] if token is None else [(key, token, strips)]
    return found


def _from_old_files(folder: Path, kind: StockClass | None) -> library.Tokenizer:
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


STATED = {
    "unknown": ("unk_token",),
    "start": ("cls_token", "bos_token"),
    "end": ("sep_token", "eos_token"),
    "pad": ("pad_token",),
    "mask": ("mask_token",),
}
"""What the files of a tokenizer call the special pieces, by their roles."""

KEYS = frozenset(key for keys in STATED.values() for key in keys)
LISTS = ("additional_special_tokens", "extra_special_tokens")
"""Where they list further special tokens."""

NUMBERED = {"start": "bos_token_id", "end": "eos_token_id", "pad": "pad_token_id"}
"""What the configuration of a model calls their numbers."""


def _roles(
    backend: library.Tokenizer,
    folder: Path,
    model_config: Mapping[str, Any],
    own_roles: Mapping[str, str],
) -> dict[str, str]:
    """The special pieces that are not those that any tokenizer has. A role that no piece was made
    for has the piece that ends texts, or the unknown one: GPT-2 has one piece for all of them."""
    stated = _stated(folder)
    numbers = {role: model_config.get(key) for role, key in NUMBERED.items()}
    found: dict[str, str] = {}
    for role, usual in SPECIAL_NAMES.items():
        named = [_written(stated.get(key)) for key in STATED[role]]
        number = numbers.get(role)
        numbered = backend.id_to_token(number) if isinstance(number, int) and number >= 0 else None
        names = (*named, own_roles.get(role), *usual, numbered)
        known = [n for n in names if n is not None and backend.token_to_id(n) is not None]
        if known:
            found[role] = known[0]
    for role in SPECIAL_NAMES:
        shared = [found[other] for other in ("end", "unknown", "start") if other in found]
        if role not in found and shared:
            found[role] = shared[0]
    usual = {
        role: next((n for n in names if backend.token_to_id(n) is not None), None)
        for role, names in SPECIAL_NAMES.items()
    }
    return {role: name for role, name in found.items() if usual[role] != name}


def _stated(folder: Path) -> dict[str, Any]:
    """What the files of a tokenizer state. special_tokens_map.json is of older days: Transformers
    does not read it beside an added_tokens_decoder."""
    config = read_json(folder)
    return config if "added_tokens_decoder" in config else {**config, **read_json(folder, SPECIALS)}


def _written(stated: Any) -> str | None:
    """A piece as a configuration writes it: its text, or what else is known of it as well."""
    piece = stated.get("content") if isinstance(stated, dict) else stated
    return piece if isinstance(piece, str) else None


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


def _from_vocabulary(folder: Path) -> library.Tokenizer:
    """BERT's WordPiece, from its list of pieces."""
    lines = (folder / VOCABULARY).read_text(encoding="utf-8").split("\n")
    vocabulary = {
        piece: index for index, piece in enumerate(lines) if piece or index + 1 < len(lines)
    }
    config = read_json(folder)
    unknown = _written(_stated(folder).get("unk_token")) or "[UNK]"
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


def read_json(folder: Path, name: str = CONFIG, kind: type = dict) -> Any:
    """Return what a JSON file holds, an object or a list; an empty one where there is no file.

    Errors: UserError where it holds anything else, or a setting of a wrong type.
    """
    file = folder / name
    if not file.is_file():
        return kind()
    stated = parse_json(read_text(file), str(file), "copy it again")
    if not isinstance(stated, kind):
        raise UserError(f"{file} holds no {KINDS[kind]}: copy it again")
    for key, expected in SETTINGS.items() if name == CONFIG else ():
        if not isinstance(stated.get(key, None), expected | None):
            raise UserError(f"{file}: {key} is {quoted(stated[key])}, which it cannot be")
    return stated


KINDS: dict[type, str] = {dict: "JSON object", list: "JSON list"}

SETTINGS: dict[str, Any] = {
    "add_prefix_space": bool,
    "do_lower_case": bool,
    "model_max_length": int | float,
    "strip_accents": bool,
    "tokenize_chinese_chars": bool,
}
"""The types of what is read of a tokenizer's configuration."""


OLD_FORMATS: dict[tuple[str, ...], Callable[[Path], library.Tokenizer]] = {
    (VOCABULARY,): _from_vocabulary,
    (BYTE_VOCABULARY, MERGES): _from_merges,
}
