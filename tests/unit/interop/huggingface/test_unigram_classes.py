"""A unigram tokenizer's tokens equal Transformers', whatever tokenizer.json says beside it."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest
import tokenizers as library
import transformers
from tokenizers import Regex, models, normalizers, pre_tokenizers

from bertwright.core.errors import UserError
from bertwright.interop.huggingface.tokenizer.reader import read_tokenizer

TEXTS = ("The SHIP, the ``ship''.", "  Zoë's  ship\tthe", "\uff53hip the\u200bship", "")

SPECIAL_TOKENS = {
    "AlbertTokenizer": ("albert", ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]),
    "XLNetTokenizer": ("xlnet", ["<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>"]),
    "XLMRobertaTokenizer": ("xlm-roberta", ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]),
    "BigBirdTokenizer": (
        "big_bird",
        ["<pad>", "</s>", "<s>", "<unk>", "[CLS]", "[SEP]", "[MASK]"],
    ),
    "T5Tokenizer": ("t5", ["<pad>", "</s>", "<unk>", "<extra_id_0>"]),
}


def character_table(character: str, replacement: str) -> normalizers.Normalizer:
    """Return a normaliser of SentencePiece that replaces one character: a trie of its bytes."""
    units, node = [0] * 2048, 256
    units[0] |= node << 10
    for depth, byte in enumerate(key := character.encode()):
        child, following = node ^ byte, 256 * (depth + 2)
        is_last = depth == len(key) - 1
        units[child] |= byte | (child ^ following) << 10 | is_last << 8
        units[following] |= is_last << 31
        node = following
    trie = struct.pack(f"<{len(units)}I", *units)
    return normalizers.Precompiled(
        struct.pack("<I", len(trie)) + trie + f"{replacement}\0".encode()
    )


TABLE = character_table("\uff53", "s")
ACCENTS = [normalizers.NFKD(), normalizers.StripAccents()]
NORMALISERS: dict[str, Any] = {
    "none": None,
    "table": TABLE,
    "table in a sequence": normalizers.Sequence([*ACCENTS, TABLE, normalizers.Lowercase()]),
    "nested table": normalizers.Sequence([normalizers.Sequence([*ACCENTS, TABLE])]),
    "spaces": normalizers.Sequence([TABLE, normalizers.Replace(Regex(" {2,}"), "▁")]),
    "other": normalizers.Sequence([normalizers.NFC(), normalizers.Replace("ship", "boat")]),
    "lowercase with accents": normalizers.Sequence([normalizers.Lowercase(), TABLE]),
    "lowercase": normalizers.Sequence([*ACCENTS, normalizers.Lowercase()]),
}
PRE_TOKENIZERS: dict[str, Any] = {
    "metaspace": pre_tokenizers.Metaspace(),
    "words": pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    ),
    "first": pre_tokenizers.Metaspace(prepend_scheme="first"),
    "never": pre_tokenizers.Metaspace(prepend_scheme="never"),
    "punctuation": pre_tokenizers.Sequence(
        [pre_tokenizers.Punctuation(), pre_tokenizers.Metaspace()]
    ),
}


def make_folder(
    folder: Path, name: str, normaliser: Any, pre_tokenizer: Any, config: dict[str, Any]
) -> Path:
    model_type, special_tokens = SPECIAL_TOKENS[name]
    letters = [chr(c) for c in range(33, 123)] + ["▁", "ë", "\uff53", "e", "\u0308"]
    tokens = [(token, 0.0) for token in special_tokens]
    tokens += [(letter, -4.0) for letter in dict.fromkeys(letters)]
    tokens += [("▁the", -1.0), ("▁ship", -1.0), ("ship", -1.5), ("▁▁ship", -1.5), ("boat", -1.0)]
    backend = library.Tokenizer(models.Unigram(tokens, special_tokens.index("<unk>")))
    if normaliser is not None:
        backend.normalizer = normaliser
    backend.pre_tokenizer = pre_tokenizer
    backend.add_special_tokens(special_tokens)
    backend.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    settings = {"tokenizer_class": name, **config}
    if name == "T5Tokenizer":
        settings["extra_ids"] = 1
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


@pytest.mark.parametrize("name", SPECIAL_TOKENS)
@pytest.mark.parametrize("config", [{}, {"do_lower_case": True, "keep_accents": True}])
def test_tokens_equal_transformers_or_the_contradiction_is_reported(
    name: str, config: dict[str, Any], tmp_path: Path
) -> None:
    num_equal, reasons = 0, []
    for normaliser in NORMALISERS.values():
        for pre_tokenizer in PRE_TOKENIZERS.values():
            folder = make_folder(tmp_path, name, normaliser, pre_tokenizer, config)
            model_config = json.loads((folder / "config.json").read_text())
            try:
                tokenizer = read_tokenizer(folder, model_config, {})
            except UserError as error:
                reasons.append(str(error))
                continue
            num_equal += 1
            stock = transformers.AutoTokenizer.from_pretrained(folder)
            for text in TEXTS:
                expected = stock.encode(text, add_special_tokens=False)
                assert tokenizer.encode(text) == expected, (normaliser, pre_tokenizer, text)
    assert num_equal >= len(PRE_TOKENIZERS) - 1
    keys = ("do_lower_case", "keep_accents", "add_prefix_space")
    assert all(any(key in reason for key in keys) for reason in reasons), reasons


@pytest.mark.parametrize("name", SPECIAL_TOKENS)
def test_an_unknown_token_of_another_class_is_refused(name: str, tmp_path: Path) -> None:
    folder = make_folder(
        tmp_path, name, NORMALISERS["lowercase"], PRE_TOKENIZERS["words"], {"do_lower_case": True}
    )
    file = folder / "tokenizer.json"
    settings = json.loads(file.read_text())
    settings["model"]["unk_id"] += 1
    file.write_text(json.dumps(settings))
    with pytest.raises(UserError, match="unk_id of its model"):
        read_tokenizer(folder, json.loads((folder / "config.json").read_text()), {})


def test_without_a_configuration_the_file_must_fit_its_class(tmp_path: Path) -> None:
    normaliser, pre_tokenizer = NORMALISERS["other"], PRE_TOKENIZERS["words"]
    folder = make_folder(tmp_path, "XLMRobertaTokenizer", normaliser, pre_tokenizer, {})
    (folder / "tokenizer_config.json").unlink()
    with pytest.raises(UserError, match=r"its normalizer is Sequence.*Transformers uses none"):
        read_tokenizer(folder, {"model_type": "xlm-roberta"}, {})
