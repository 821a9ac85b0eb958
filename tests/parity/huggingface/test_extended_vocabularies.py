"""Transformers opens models with an extended vocabulary, with the same ids and hidden states."""

from pathlib import Path

import pytest
import transformers

from bertwright.compression.vocabulary.extension import extend_vocabulary
from bertwright.data.tokenization.tokenizer import (
    ByteBpeConfig,
    TokenizerConfig,
    UnigramConfig,
    WordPieceConfig,
)
from bertwright.data.vocabulary_training import train_tokenizer
from bertwright.interop.huggingface.exporter import export_huggingface
from bertwright.interop.loading import load
from bertwright.models.model import Model
from bertwright.models.text_model import TextModel
from commands import invoke_json
from small_text import stories
from toy_recipes import toy

NEWS = ["The coronavirus vaccine for the lighthouse keepers, and vaccinated ships."] * 3
SYSTEMS: dict[str, TokenizerConfig] = {
    "bert": WordPieceConfig(vocab_size=230),
    "roberta": ByteBpeConfig(vocab_size=400),
    "albert": UnigramConfig(vocab_size=230),
}


@pytest.mark.parametrize("system", SYSTEMS)
def test_transformers_has_the_same_ids_and_states(system: str, tmp_path: Path) -> None:
    tokenizer = train_tokenizer(stories(5), SYSTEMS[system])
    original = TextModel(Model.build(toy(system), tokenizer.vocab_size), tokenizer, "float32")
    export_huggingface(original.model, tokenizer, tmp_path / "stock")
    shown = invoke_json("vocab", "show", tmp_path / "stock")
    assert (shown["kind"], shown["size"]) == (tokenizer.kind, tokenizer.vocab_size)
    extended = extend_vocabulary(load(tmp_path / "stock", "float32"), NEWS, 5).model
    assert extended.tokenizer.vocab_size == tokenizer.vocab_size + 5
    export_huggingface(extended.model, extended.tokenizer, tmp_path / "new", verify=True)
    stock = transformers.AutoTokenizer.from_pretrained(tmp_path / "new")
    assert len(stock) == extended.tokenizer.vocab_size
    for text in (*NEWS, *stories(5)):
        assert stock(text, add_special_tokens=False).input_ids == extended.tokenizer.encode(text)
    assert len(stock.tokenize(NEWS[0])) < len(original.tokenizer.encode(NEWS[0]))
