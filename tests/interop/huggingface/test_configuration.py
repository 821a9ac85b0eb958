"""Whatever config.json states, it is one sentence that names the key, at once, or a model."""

import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from stock import saved, stock_model

from bertwright.errors import UserError
from bertwright.interop.huggingface import import_folder
from bertwright.interop.huggingface.configuration import read_config

CLASSES = (
    *("BertModel", "RobertaModel", "DistilBertModel", "AlbertModel", "ElectraModel"),
    *("ModernBertModel", "MobileBertModel", "LongformerModel", "BigBirdModel", "XLMModel"),
    *("XLNetModel", "OpenAIGPTModel", "GPT2Model", "T5Model", "BartModel"),
)

WRONG = (10**12, -1, 0, "x", [], {}, float("nan"))


@pytest.mark.parametrize("architecture", CLASSES)
def test_every_key_may_hold_anything(architecture: str, tmp_path: Path) -> None:
    folder = saved(stock_model(architecture), tmp_path / "stock")
    file = folder / "config.json"
    stated: dict[str, Any] = json.loads(file.read_text())
    for key in stated:
        for value in WRONG:
            file.write_text(json.dumps({**stated, key: value}))
            began = time.process_time()
            with suppress(UserError):
                import_folder(folder)
            assert time.process_time() - began < 2, (key, value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_hidden_layers", 10**9),
        ("hidden_size", 10**12),
        ("vocab_size", 10**12),
        ("max_position_embeddings", 10**12),
        ("type_vocab_size", 10**9),
        ("num_attention_heads", "12"),
        ("hidden_act", ["gelu"]),
        ("hidden_act", 3),
        ("id2label", ["a"]),
        ("id2label", {"a": "b"}),
        ("architectures", "BertModel"),
        ("model_type", []),
        ("layer_norm_eps", "small"),
        ("initializer_range", []),
        ("pad_token_id", "[PAD]"),
        ("rope_parameters", 3),
    ],
)
def test_a_wrong_value_names_its_key(key: str, value: Any, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert", key: value}))
    with pytest.raises(UserError, match=rf"config\.json: {key}"):
        import_folder(tmp_path) if key == "hidden_act" else read_config(tmp_path)


@pytest.mark.parametrize(
    "content", ["{", "[]", "3", "[" * 100_000, '{"hidden_size": 1' + "0" * 5000]
)
def test_what_is_no_object_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(UserError, match=r"config\.json"):
        read_config(tmp_path)
