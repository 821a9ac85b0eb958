"""Tokens equal Transformers', or the files that contradict each other are named."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers as library
import transformers
from tokenizers import models, normalizers, pre_tokenizers

from bertwright.core.errors import UserError
from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.interop.huggingface.tokenizer.reader import read_tokenizer
from stock_models import byte_bpe, wordpiece

TEXTS = (
    "The SHIP, the ship.",
    "  Zoë's ship [MASK] <mask> </s> [SEP]",
    "çaça 东京ship\tthe\u200bship",
    "<new> the <new>ship <extra>",
)
UNUSED_TOKENS = ["lone", "##ly"]


def unigram() -> library.Tokenizer:
    """ALBERT's kind: lowercase letters without accents after a space."""
    names = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]", "▁"]
    tokens = [*((name, 0.0) for name in names), *((chr(c), -2.0) for c in range(33, 123))]
    backend = library.Tokenizer(models.Unigram([*tokens, ("▁the", -1.0), ("▁ship", -1.0)], 1))
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


def make_folder(path: Path, name: str, config: dict[str, Any]) -> Path:
    backend, kind = KINDS[name]
    path.mkdir(exist_ok=True)
    backend().save(str(path / "tokenizer.json"))
    (path / "config.json").write_text(json.dumps({"model_type": kind}))
    settings = {"tokenizer_class": name, **config}
    (path / "tokenizer_config.json").write_text(
        json.dumps(
            {key: value for key, value in settings.items() if key != "tokenizer_class" or value}
        )
    )
    return path


def read_ours(folder: Path) -> Tokenizer:
    return read_tokenizer(folder, json.loads((folder / "config.json").read_text()), {})


def is_equal_or_reported(folder: Path, *keys: str) -> bool:
    """Return whether our tokens equal Transformers'; an error must name one of the keys."""
    reason = ""
    try:
        tokenizer = read_ours(folder)
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
def test_tokens_equal_transformers_or_the_contradiction_is_reported(
    name: str, config: dict[str, Any], tmp_path: Path
) -> None:
    is_equal_or_reported(make_folder(tmp_path, name, config), *config)


@pytest.mark.parametrize("name", KINDS)
def test_consistent_files_are_read(name: str, tmp_path: Path) -> None:
    assert is_equal_or_reported(make_folder(tmp_path, name, {}))


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
def test_a_rebuilt_class_follows_its_configuration(
    name: str, config: dict[str, Any], tmp_path: Path
) -> None:
    folder = make_folder(tmp_path, name, config)
    assert is_equal_or_reported(folder)
    plain = make_folder(tmp_path / "plain", name, {})
    differ = any(read_ours(folder).encode(text) != read_ours(plain).encode(text) for text in TEXTS)
    assert differ == (name != "PreTrainedTokenizerFast")


@pytest.mark.parametrize("name", ["BertTokenizer", "RobertaTokenizer", "DistilBertTokenizer"])
def test_other_files_next_to_tokenizer_json_are_ignored(name: str, tmp_path: Path) -> None:
    """As in Transformers: vocab.txt and merges.txt are not read if there is a tokenizer.json."""
    folder = make_folder(tmp_path, name, {})
    (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nship\nthe\n")
    (folder / "vocab.json").write_text('{"a": 0}')
    (folder / "merges.txt").write_text("")
    assert is_equal_or_reported(folder)


@pytest.mark.parametrize("flag", ["lstrip", "rstrip", "single_word", "normalized"])
def test_conflicting_flags_of_an_added_token_are_reported(flag: str, tmp_path: Path) -> None:
    mask = {"content": "<mask>", "special": True, "normalized": False}
    for name in ("RobertaTokenizer", "PreTrainedTokenizerFast"):
        token_id = byte_bpe().token_to_id("<mask>")
        config = {"added_tokens_decoder": {str(token_id): mask | {flag: True}}}
        folder = make_folder(tmp_path / name, name, config)
        byte_bpe().save(str(folder / "tokenizer.json"))
        is_equal_or_reported(folder, flag, "added_tokens_decoder")


def test_special_tokens_named_in_the_configuration_are_not_split(tmp_path: Path) -> None:
    for name in ("BertTokenizer", "PreTrainedTokenizerFast"):
        folder = make_folder(tmp_path / name, name, {"mask_token": "the"})
        assert is_equal_or_reported(folder)
        folder = make_folder(tmp_path / f"{name} map", name, {})
        (folder / "special_tokens_map.json").write_text('{"mask_token": "ship"}')
        assert is_equal_or_reported(folder)
        assert read_ours(folder).id_to_token(read_ours(folder).special_tokens.mask) == "ship"


def test_a_map_next_to_an_added_tokens_decoder_is_ignored(tmp_path: Path) -> None:
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    decoder = {
        str(index): {"content": name, "special": True, "normalized": False}
        for index, name in enumerate(names)
    }
    config = {"added_tokens_decoder": decoder, "mask_token": "[MASK]"}
    folder = make_folder(tmp_path, "BertTokenizer", config)
    (folder / "special_tokens_map.json").write_text('{"mask_token": "ship"}')
    assert is_equal_or_reported(folder)
    stock = transformers.AutoTokenizer.from_pretrained(folder)
    assert read_ours(folder).special_tokens.mask == stock.mask_token_id


def test_a_special_token_outside_the_vocabulary_is_refused(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, "BertTokenizer", {"mask_token": "[MASKED]"})
    with pytest.raises(UserError, match=r"mask_token is '\[MASKED\]'"):
        read_ours(folder)


UNSUPPORTED = ["BertJapaneseTokenizer", "BertweetTokenizer", "XLMTokenizer", "OurTokenizer", "ByT5"]


@pytest.mark.parametrize("config_file", ["tokenizer_config.json", "config.json"])
@pytest.mark.parametrize("files", ["tokenizer.json", "vocab.txt", "merges"])
@pytest.mark.parametrize("name", UNSUPPORTED)
def test_an_unsupported_class_is_refused(
    name: str, files: str, config_file: str, tmp_path: Path
) -> None:
    folder = make_folder(tmp_path, "BertTokenizer", {"tokenizer_class": None})
    config = json.loads((folder / config_file).read_text())
    (folder / config_file).write_text(json.dumps({**config, "tokenizer_class": name}))
    if files != "tokenizer.json":
        (folder / "tokenizer.json").unlink()
        (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nship\nthe\n")
    with pytest.raises(UserError, match=f"tokenizer class is {name}, which is not supported"):
        read_ours(folder)


def test_legacy_files_are_read_by_their_class(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, "BertTokenizer", {"unk_token": "[NONE]", "do_lower_case": False})
    (folder / "tokenizer.json").unlink()
    lines = ["[PAD]", "[NONE]", "[CLS]", "[SEP]", "[MASK]", "ship", "the", "##s", "Zoë"]
    (folder / "vocab.txt").write_text("".join(f"{line}\n" for line in lines))
    assert is_equal_or_reported(folder)
    config = json.dumps({"tokenizer_class": "RobertaTokenizer"})
    (folder / "tokenizer_config.json").write_text(config)
    with pytest.raises(UserError, match="holds no tokenizer"):
        read_ours(folder)


@pytest.mark.parametrize("name", ["BertTokenizer", "RobertaTokenizer", "AlbertTokenizer"])
@pytest.mark.parametrize("part", ["normalizer", "pre_tokenizer", "model"])
def test_a_tokenizer_json_of_another_class_is_refused(name: str, part: str, tmp_path: Path) -> None:
    folder = make_folder(tmp_path, name, {})
    other = unigram() if name == "BertTokenizer" else wordpiece()
    settings = json.loads((folder / "tokenizer.json").read_text())
    settings[part] = json.loads(other.to_str())[part]
    (folder / "tokenizer.json").write_text(json.dumps(settings))
    is_equal_or_reported(
        folder, part, "vocabulary", "do_lower_case", "keep_accents", "add_prefix_space"
    )


@pytest.mark.parametrize("key", ["lowercase", "strip_accents", "handle_chinese_chars"])
def test_a_file_without_configuration_must_fit_its_default_class(key: str, tmp_path: Path) -> None:
    """Transformers uses the class of the model type if no file names one."""
    folder = make_folder(tmp_path, "BertTokenizer", {})
    (folder / "tokenizer_config.json").unlink()
    assert is_equal_or_reported(folder)
    settings = json.loads((folder / "tokenizer.json").read_text())
    settings["normalizer"][key] = False
    (folder / "tokenizer.json").write_text(json.dumps(settings))
    assert not is_equal_or_reported(folder, f"{key} of its normalizer is False")
    config = json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"})
    (folder / "tokenizer_config.json").write_text(config)
    assert is_equal_or_reported(folder)


@pytest.mark.parametrize(
    "added_tokens", [[], {"a": NEW}, {"3": "<new>"}, {"3": {}}, {"3": {"content": 1}}]
)
def test_malformed_added_tokens_are_refused(added_tokens: Any, tmp_path: Path) -> None:
    folder = make_folder(tmp_path, "BertTokenizer", {"added_tokens_decoder": added_tokens})
    with pytest.raises(UserError, match="holds no tokens by their ids"):
        read_ours(folder)


def test_dropout_is_refused(tmp_path: Path) -> None:
    """It would change the tokens of a text at random."""
    backend = byte_bpe()
    settings = json.loads(backend.to_str())
    settings["model"]["dropout"] = 0.1
    folder = make_folder(tmp_path, "RobertaTokenizer", {})
    (folder / "tokenizer.json").write_text(json.dumps(settings))
    with pytest.raises(UserError, match=r"dropout 0\.1"):
        read_ours(folder)
