"""Tokens are those of Transformers, or the files that contradict each other are named."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers as library
import transformers
from stock import byte_bpe, wordpiece
from tokenizers import models, normalizers, pre_tokenizers

from bertwright.errors import UserError
from bertwright.interop.huggingface.tokenizer_reading import read_tokenizer
from bertwright.text.tokenizers import Tokenizer

TEXTS = (
    "The SHIP, the ship.",
    "  Zoë's ship [MASK] <mask> </s> [SEP]",
    "çaça 东京ship\tthe\u200bship",
    "<new> the <new>ship <extra>",
)
LONELY = ["lone", "##ly"]


def unigram() -> library.Tokenizer:
    """ALBERT's kind: small letters without accents behind a space."""
    names = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]", "▁"]
    pieces = [*((name, 0.0) for name in names), *((chr(c), -2.0) for c in range(33, 123))]
    backend = library.Tokenizer(models.Unigram([*pieces, ("▁the", -1.0), ("▁ship", -1.0)], 1))
    backend.normalizer = normalizers.Sequence(
        [
            normalizers.Replace("``", '"'),
            normalizers.Replace("''", '"'),
            normalizers.NFKD(),
            normalizers.StripAccents(),
            normalizers.Lowercase(),
        ]
    )
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")]
    )
    backend.add_special_tokens(names[:5])
    return backend


KINDS: dict[str, tuple[Callable[[], library.Tokenizer], str]] = {
    "BertTokenizer": (wordpiece, "bert"),
    "BertTokenizerFast": (wordpiece, "bert"),
    "DistilBertTokenizer": (wordpiece, "distilbert"),
    "ElectraTokenizer": (wordpiece, "electra"),
    "PreTrainedTokenizerFast": (wordpiece, "bert"),
    "RobertaTokenizer": (byte_bpe, "roberta"),
    "GPT2Tokenizer": (byte_bpe, "gpt2"),
    "AlbertTokenizer": (unigram, "albert"),
}

NEW = {"content": "<new>", "lstrip": False, "rstrip": False, "single_word": False}
CONFIGS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "do_lower_case false": {"do_lower_case": False},
    "do_lower_case true": {"do_lower_case": True},
    "strip_accents false": {"strip_accents": False},
    "strip_accents true": {"strip_accents": True, "do_lower_case": False},
    "tokenize_chinese_chars false": {"tokenize_chinese_chars": False},
    "add_prefix_space true": {"add_prefix_space": True},
    "add_prefix_space false": {"add_prefix_space": False},
    "keep_accents true": {"keep_accents": True},
    "additional token": {"additional_special_tokens": ["ship"]},
    "unknown token": {"unk_token": "the"},
    "new token": {"added_tokens_decoder": {"9": NEW | {"normalized": False, "special": True}}},
    "split": {"split_special_tokens": True},
    "no class": {"tokenizer_class": None},
}


def folder_of(path: Path, name: str, config: dict[str, Any]) -> Path:
    backend, kind = KINDS[name]
    path.mkdir(exist_ok=True)
    backend().save(str(path / "tokenizer.json"))
    (path / "config.json").write_text(json.dumps({"model_type": kind}))
    stated = {"tokenizer_class": name, **config}
    (path / "tokenizer_config.json").write_text(
        json.dumps(
            {key: value for key, value in stated.items() if key != "tokenizer_class" or value}
        )
    )
    return path


def ours(folder: Path) -> Tokenizer:
    return read_tokenizer(folder, json.loads((folder / "config.json").read_text()), {})


def same_or_named(folder: Path, *keys: str) -> bool:
    """Whether our tokens are those of Transformers; else the refusal names one of the keys."""
    reason = ""
    try:
        tokenizer = ours(folder)
    except UserError as error:
        reason = str(error)
    if reason:
        assert any(key in reason for key in keys), reason
        return False
    stock = transformers.AutoTokenizer.from_pretrained(folder)
    for text in TEXTS:
        assert tokenizer.encode(text) == stock.encode(text, add_special_tokens=False), text
    return True


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("name", KINDS)
def test_tokens_are_those_of_transformers_or_the_contradiction_is_named(
    name: str, config: dict[str, Any], tmp_path: Path
) -> None:
    same_or_named(folder_of(tmp_path, name, config), *config)


@pytest.mark.parametrize("name", KINDS)
def test_files_that_agree_are_read(name: str, tmp_path: Path) -> None:
    assert same_or_named(folder_of(tmp_path, name, {}))


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("BertTokenizer", {"do_lower_case": False}),
        ("BertTokenizer", {"strip_accents": False}),
        ("BertTokenizer", {"tokenize_chinese_chars": False}),
        ("RobertaTokenizer", {"add_prefix_space": True}),
        ("GPT2Tokenizer", {"add_prefix_space": True}),
        ("PreTrainedTokenizerFast", {"do_lower_case": False}),
    ],
)
def test_a_class_that_is_rebuilt_follows_its_configuration(
    name: str, config: dict[str, Any], tmp_path: Path
) -> None:
    folder = folder_of(tmp_path, name, config)
    assert same_or_named(folder)
    plain = folder_of(tmp_path / "plain", name, {})
    differ = any(ours(folder).encode(text) != ours(plain).encode(text) for text in TEXTS)
    assert differ == (name != "PreTrainedTokenizerFast")


@pytest.mark.parametrize("name", ["BertTokenizer", "RobertaTokenizer", "DistilBertTokenizer"])
def test_other_files_beside_tokenizer_json_change_nothing(name: str, tmp_path: Path) -> None:
    """As in Transformers: vocab.txt and merges.txt are not read beside it."""
    folder = folder_of(tmp_path, name, {})
    (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nship\nthe\n")
    (folder / "vocab.json").write_text('{"a": 0}')
    (folder / "merges.txt").write_text("")
    assert same_or_named(folder)


@pytest.mark.parametrize("flag", ["lstrip", "rstrip", "single_word", "normalized"])
def test_a_flag_of_an_added_token_that_is_stated_twice_is_stated_once(
    flag: str, tmp_path: Path
) -> None:
    mask = {"content": "<mask>", "special": True, "normalized": False}
    for name in ("RobertaTokenizer", "PreTrainedTokenizerFast"):
        number = byte_bpe().token_to_id("<mask>")
        config = {"added_tokens_decoder": {str(number): mask | {flag: True}}}
        folder = folder_of(tmp_path / name, name, config)
        byte_bpe().save(str(folder / "tokenizer.json"))
        same_or_named(folder, flag, "added_tokens_decoder")


def test_special_tokens_that_are_only_named_are_not_split(tmp_path: Path) -> None:
    for name in ("BertTokenizer", "PreTrainedTokenizerFast"):
        folder = folder_of(tmp_path / name, name, {"mask_token": "the"})
        assert same_or_named(folder)
        folder = folder_of(tmp_path / f"{name} map", name, {})
        (folder / "special_tokens_map.json").write_text('{"mask_token": "ship"}')
        assert same_or_named(folder)
        assert ours(folder).piece(ours(folder).specials.mask) == "ship"


def test_a_map_beside_an_added_tokens_decoder_is_not_read(tmp_path: Path) -> None:
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    decoder = {
        str(n): {"content": name, "special": True, "normalized": False}
        for n, name in enumerate(names)
    }
    config = {"added_tokens_decoder": decoder, "mask_token": "[MASK]"}
    folder = folder_of(tmp_path, "BertTokenizer", config)
    (folder / "special_tokens_map.json").write_text('{"mask_token": "ship"}')
    assert same_or_named(folder)
    stock = transformers.AutoTokenizer.from_pretrained(folder)
    assert ours(folder).specials.mask == stock.mask_token_id


def test_a_token_that_is_named_and_not_there_is_refused(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "BertTokenizer", {"mask_token": "[HIDDEN]"})
    with pytest.raises(UserError, match=r"mask_token is '\[HIDDEN\]'"):
        ours(folder)


UNKNOWN = ["BertJapaneseTokenizer", "BertweetTokenizer", "XLMTokenizer", "OurTokenizer", "ByT5"]


@pytest.mark.parametrize("where", ["tokenizer_config.json", "config.json"])
@pytest.mark.parametrize("files", ["tokenizer.json", "vocab.txt", "merges"])
@pytest.mark.parametrize("name", UNKNOWN)
def test_a_class_that_is_not_understood_is_refused(
    name: str, files: str, where: str, tmp_path: Path
) -> None:
    folder = folder_of(tmp_path, "BertTokenizer", {"tokenizer_class": None})
    known = json.loads((folder / where).read_text())
    (folder / where).write_text(json.dumps({**known, "tokenizer_class": name}))
    if files != "tokenizer.json":
        (folder / "tokenizer.json").unlink()
        (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nship\nthe\n")
    with pytest.raises(UserError, match=f"tokenizer class is {name}, which is not understood"):
        ours(folder)


def test_old_files_are_read_by_the_class_that_they_belong_to(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "BertTokenizer", {"unk_token": "[NONE]", "do_lower_case": False})
    (folder / "tokenizer.json").unlink()
    lines = ["[PAD]", "[NONE]", "[CLS]", "[SEP]", "[MASK]", "ship", "the", "##s", "Zoë"]
    (folder / "vocab.txt").write_text("".join(f"{line}\n" for line in lines))
    assert same_or_named(folder)
    config = json.dumps({"tokenizer_class": "RobertaTokenizer"})
    (folder / "tokenizer_config.json").write_text(config)
    with pytest.raises(UserError, match="holds no tokenizer"):
        ours(folder)


@pytest.mark.parametrize("name", ["BertTokenizer", "RobertaTokenizer", "AlbertTokenizer"])
@pytest.mark.parametrize("part", ["normalizer", "pre_tokenizer", "model"])
def test_a_tokenizer_json_of_another_make_is_refused(name: str, part: str, tmp_path: Path) -> None:
    folder = folder_of(tmp_path, name, {})
    other = unigram() if name == "BertTokenizer" else wordpiece()
    settings = json.loads((folder / "tokenizer.json").read_text())
    settings[part] = json.loads(other.to_str())[part]
    (folder / "tokenizer.json").write_text(json.dumps(settings))
    same_or_named(folder, part, "vocabulary", "do_lower_case", "keep_accents", "add_prefix_space")


@pytest.mark.parametrize("key", ["lowercase", "strip_accents", "handle_chinese_chars"])
def test_a_file_alone_is_read_where_its_class_would_read_it_so(key: str, tmp_path: Path) -> None:
    """Transformers takes the class of the model's type where no file names one."""
    folder = folder_of(tmp_path, "BertTokenizer", {})
    (folder / "tokenizer_config.json").unlink()
    assert same_or_named(folder)
    settings = json.loads((folder / "tokenizer.json").read_text())
    settings["normalizer"][key] = False
    (folder / "tokenizer.json").write_text(json.dumps(settings))
    assert not same_or_named(folder, f"{key} of its normalizer is False")
    config = json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"})
    (folder / "tokenizer_config.json").write_text(config)
    assert same_or_named(folder)


@pytest.mark.parametrize(
    "stated", [[], {"a": NEW}, {"3": "<new>"}, {"3": {}}, {"3": {"content": 1}}]
)
def test_added_tokens_of_another_shape_are_refused(stated: Any, tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "BertTokenizer", {"added_tokens_decoder": stated})
    with pytest.raises(UserError, match="holds no tokens by their ids"):
        ours(folder)


def test_dropout_is_refused(tmp_path: Path) -> None:
    """It would give a text other tokens each time."""
    backend = byte_bpe()
    settings = json.loads(backend.to_str())
    settings["model"]["dropout"] = 0.1
    folder = folder_of(tmp_path, "RobertaTokenizer", {})
    (folder / "tokenizer.json").write_text(json.dumps(settings))
    with pytest.raises(UserError, match=r"dropout 0\.1"):
        ours(folder)
