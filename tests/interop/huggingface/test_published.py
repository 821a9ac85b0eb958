"""Folders as their makers publish them: other special pieces, names without a prefix, buffers."""

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers as library
import torch
from safetensors.torch import load_file, save_file
from stock import saved, stock_model
from tokenizers import models, pre_tokenizers, trainers

from bertwright.errors import UserError
from bertwright.interop.huggingface import export_folder
from bertwright.interop.huggingface.families import FAMILIES
from bertwright.interop.huggingface.reading import import_folder
from bertwright.interop.huggingface.tokenizer_reading import read_tokenizer
from bertwright.model.folder import load_model, save_model
from bertwright.model.text_model import TextModel
from bertwright.text.tokenizers import Tokenizer

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
"""By family: the special pieces, what the tokenizer's files say, what the model's, and what is to
come of it: pad, unknown, start, end, mask."""


def byte_pairs(specials: list[str]) -> library.Tokenizer:
    backend = library.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=specials, initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator([ENGLISH], trainer)
    return backend


@pytest.mark.parametrize("family", PUBLISHED)
def test_special_pieces_are_those_that_are_published(family: str, tmp_path: Path) -> None:
    specials, of_tokenizer, of_model, expected = PUBLISHED[family]
    byte_pairs(specials).save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "special_tokens_map.json").write_text(json.dumps(of_tokenizer))
    tokenizer = read_tokenizer(tmp_path, of_model, FAMILIES[family].special_pieces)
    found = tokenizer.specials
    roles = (found.pad, found.unknown, found.start, found.end, found.mask)
    assert tuple(map(tokenizer.piece, roles)) == expected
    tokenizer.save(tmp_path / "ours")
    again = Tokenizer.load(tmp_path / "ours")
    assert (again.specials, again.hash) == (found, tokenizer.hash)


@pytest.fixture
def gpt_2(tmp_path: Path) -> Path:
    """A folder as that of the hub: names without a prefix, buffers, one special piece."""
    folder = tmp_path / "gpt2"
    saved(stock_model("GPT2LMHeadModel", vocab_size=300), folder)
    tensors = load_file(folder / "model.safetensors")
    bare = {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}
    bare |= {"h.0.attn.bias": torch.ones(1, 1, 16, 16), "h.0.attn.masked_bias": torch.zeros(())}
    bare.pop("lm_head.weight", None)
    save_file(bare, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    backend = byte_pairs(["<|endoftext|>"])
    config |= {"bos_token_id": 0, "eos_token_id": 0}
    (folder / "config.json").write_text(json.dumps(config))
    for file in folder.glob("*token*"):
        file.unlink()
    backend.save(str(folder / "tokenizer.json"))
    return folder


def test_a_published_gpt_2_reads_on(gpt_2: Path, tmp_path: Path) -> None:
    model, tokenizer = import_folder(gpt_2)
    assert set(model.recipe.objectives) == {"causal"}
    assert model.recipe.assembly.opening(tokenizer.specials) == tokenizer.specials.end
    text = TextModel(model, tokenizer, "float32")
    [said] = text.generate(["the ship"], max_new_tokens=3, temperature=0)
    assert len(said.pieces) == 3
    save_model(tmp_path / "ours", model, tokenizer)
    again = TextModel(*load_model(tmp_path / "ours"), "float32")
    assert again.score(["the ship sails"]) == text.score(["the ship sails"])
    export_folder(model, tokenizer, tmp_path / "theirs", verify=True)


def test_pieces_of_gpt_are_read_from_its_old_files(tmp_path: Path) -> None:
    pieces = ["<unk>", "t", "h", "e</w>", "e", "th", "the</w>", "s</w>"]
    (tmp_path / "vocab.json").write_text(json.dumps({p: n for n, p in enumerate(pieces)}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\nt h\nth e</w>\n")
    tokenizer = read_tokenizer(tmp_path, {}, {})
    assert [tokenizer.piece(n) for n in tokenizer.encode("The the")] == ["the</w>", "the</w>"]
    (tmp_path / "config.json").write_text('{"model_type": "xlm"}')
    with pytest.raises(UserError, match="found by Moses"):
        read_tokenizer(tmp_path, {}, {})


def test_pieces_that_were_added_later_have_their_numbers(tmp_path: Path) -> None:
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "ship"]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces) + "\n")
    (tmp_path / "added_tokens.json").write_text('{"[NAME]": 7}')
    tokenizer = read_tokenizer(tmp_path, {}, {})
    assert tokenizer.encode("the [NAME] ship") == [5, 7, 6]
    (tmp_path / "added_tokens.json").write_text('{"[NAME]": 9}')
    with pytest.raises(UserError, match=r"'\[NAME\]' is number 9, and behind the vocabulary it is"):
        read_tokenizer(tmp_path, {}, {})
