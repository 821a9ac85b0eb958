"""Folders as published: other special tokens, names without a prefix, buffers."""

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers as library
import torch
from safetensors.torch import load_file, save_file
from tokenizers import models, pre_tokenizers, trainers

from bertwright.core.errors import UserError
from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.interop.huggingface.exporter import export_huggingface
from bertwright.interop.huggingface.families.registry import FAMILIES
from bertwright.interop.huggingface.importer import import_huggingface
from bertwright.interop.huggingface.tokenizer.reader import read_tokenizer
from bertwright.models.saving import load_model, save_model
from bertwright.models.text_model import TextModel
from stock_models import saved, stock_model

ENGLISH = "the ship sails to the sea and the lamp shines on the ship and on the sea"

PUBLISHED: dict[str, tuple[list[str], dict[str, Any], dict[str, Any], tuple[str, ...]]] = {
    "gpt2": (
        ["<|endoftext|>"],
        {},
        {"bos_token_id": 0, "eos_token_id": 0},
        ("<|endoftext|>",) * 5,
    ),
    "openai-gpt": (["<unk>"], {}, {}, ("<unk>",) * 5),
    "t5": (
        ["<pad>", "</s>", "<unk>"],
        {"eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"},
        {"eos_token_id": 1, "pad_token_id": 0, "decoder_start_token_id": 0},
        ("<pad>", "<unk>", "</s>", "</s>", "</s>"),
    ),
    "xlnet": (
        ["<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>"],
        {},
        {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 5},
        ("<pad>", "<unk>", "<cls>", "<sep>", "<mask>"),
    ),
    "xlm": (
        ["<s>", "</s>", "<pad>", "<unk>", "<special0>", "<special1>"],
        {},
        {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2},
        ("<pad>", "<unk>", "<s>", "</s>", "<special1>"),
    ),
    "roberta": (
        ["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
        {"mask_token": {"content": "<mask>", "lstrip": True}},
        {"bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1},
        ("<pad>", "<unk>", "<s>", "</s>", "<mask>"),
    ),
}
"""Special tokens, tokenizer settings, model config, and expected pad, unknown, start, end and mask.
"""


def train_byte_bpe(specials: list[str]) -> library.Tokenizer:
    backend = library.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=specials, initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator([ENGLISH], trainer)
    return backend


@pytest.mark.parametrize("family", PUBLISHED)
def test_special_tokens_are_the_published_ones(family: str, tmp_path: Path) -> None:
    specials, tokenizer_settings, model_config, expected = PUBLISHED[family]
    train_byte_bpe(specials).save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "special_tokens_map.json").write_text(json.dumps(tokenizer_settings))
    tokenizer = read_tokenizer(tmp_path, model_config, FAMILIES[family].published_special_tokens)
    special_tokens = tokenizer.special_tokens
    ids = (
        special_tokens.pad,
        special_tokens.unknown,
        special_tokens.start,
        special_tokens.end,
        special_tokens.mask,
    )
    assert tuple(map(tokenizer.id_to_token, ids)) == expected
    tokenizer.save(tmp_path / "ours")
    reloaded = Tokenizer.load(tmp_path / "ours")
    assert (reloaded.special_tokens, reloaded.hash) == (special_tokens, tokenizer.hash)


@pytest.fixture
def gpt_2(tmp_path: Path) -> Path:
    """A folder as on the hub: names without a prefix, buffers, one special token."""
    folder = tmp_path / "gpt2"
    saved(stock_model("GPT2LMHeadModel", vocab_size=300), folder)
    tensors = load_file(folder / "model.safetensors")
    bare = {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}
    bare |= {"h.0.attn.bias": torch.ones(1, 1, 16, 16), "h.0.attn.masked_bias": torch.zeros(())}
    bare.pop("lm_head.weight", None)
    save_file(bare, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    backend = train_byte_bpe(["<|endoftext|>"])
    config |= {"bos_token_id": 0, "eos_token_id": 0}
    (folder / "config.json").write_text(json.dumps(config))
    for file in folder.glob("*token*"):
        file.unlink()
    backend.save(str(folder / "tokenizer.json"))
    return folder


def test_a_published_gpt_2_generates(gpt_2: Path, tmp_path: Path) -> None:
    model, tokenizer = import_huggingface(gpt_2)
    assert set(model.recipe.objectives) == {"causal"}
    assert (
        model.recipe.assembly.start_token(tokenizer.special_tokens) == tokenizer.special_tokens.end
    )
    text_model = TextModel(model, tokenizer, "float32")
    [continuation] = text_model.generate(["the ship"], max_new_tokens=3, temperature=0)
    assert len(continuation.token_ids) == 3
    save_model(tmp_path / "ours", model, tokenizer)
    reloaded = TextModel(*load_model(tmp_path / "ours"), "float32")
    assert reloaded.score(["the ship sails"]) == text_model.score(["the ship sails"])
    export_huggingface(model, tokenizer, tmp_path / "theirs", verify=True)


def test_gpt_tokenizers_are_read_from_legacy_files(tmp_path: Path) -> None:
    tokens = ["<unk>", "t", "h", "e</w>", "e", "th", "the</w>", "s</w>"]
    (tmp_path / "vocab.json").write_text(
        json.dumps({token: index for index, token in enumerate(tokens)})
    )
    (tmp_path / "merges.txt").write_text("#version: 0.2\nt h\nth e</w>\n")
    tokenizer = read_tokenizer(tmp_path, {}, {})
    assert [tokenizer.id_to_token(index) for index in tokenizer.encode("The the")] == [
        "the</w>",
        "the</w>",
    ]
    (tmp_path / "config.json").write_text('{"model_type": "xlm"}')
    with pytest.raises(UserError, match="needs Moses"):
        read_tokenizer(tmp_path, {}, {})


def test_added_tokens_keep_their_ids(tmp_path: Path) -> None:
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "ship"]
    (tmp_path / "vocab.txt").write_text("\n".join(tokens) + "\n")
    (tmp_path / "added_tokens.json").write_text('{"[NAME]": 7}')
    tokenizer = read_tokenizer(tmp_path, {}, {})
    assert tokenizer.encode("the [NAME] ship") == [5, 7, 6]
    (tmp_path / "added_tokens.json").write_text('{"[NAME]": 9}')
    with pytest.raises(UserError, match=r"'\[NAME\]' has the id 9, and appended to the vocabulary"):
        read_tokenizer(tmp_path, {}, {})
