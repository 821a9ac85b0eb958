"""Any config.json gives a model, or quickly an error that names the key."""

import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from bertwright.core.errors import UserError
from bertwright.interop.huggingface.config import read_config
from bertwright.interop.huggingface.importer import import_huggingface
from stock_models import saved, stock_model

CLASSES = (
    *("BertModel", "ModernBertModel", "LongformerModel", "XLNetModel", "T5Model"),
    *(
        pytest.param(name, marks=pytest.mark.full)
        for name in (
            *("RobertaModel", "DistilBertModel", "AlbertModel", "ElectraModel", "MobileBertModel"),
            *("BigBirdModel", "XLMModel", "OpenAIGPTModel", "GPT2Model", "BartModel"),
        )
    ),
)

INVALID = (10**12, -1, 0, "x", [], {}, float("nan"))


@pytest.mark.parametrize("architecture", CLASSES)
def test_any_value_of_any_key_is_handled(architecture: str, tmp_path: Path) -> None:
    folder = saved(stock_model(architecture), tmp_path / "stock")
    file = folder / "config.json"
    config: dict[str, Any] = json.loads(file.read_text())
    for key in config:
        for value in INVALID:
            file.write_text(json.dumps({**config, key: value}))
            start = time.process_time()
            with suppress(UserError):
                import_huggingface(folder)
            assert time.process_time() - start < 2, (key, value)


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
def test_an_invalid_value_names_its_key(key: str, value: Any, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert", key: value}))
    with pytest.raises(UserError, match=rf"config\.json: {key}"):
        import_huggingface(tmp_path) if key == "hidden_act" else read_config(tmp_path)


@pytest.mark.parametrize(
    "content", ["{", "[]", "3", "[" * 100_000, '{"hidden_size": 1' + "0" * 5000]
)
def test_other_json_than_an_object_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(UserError, match=r"config\.json"):
        read_config(tmp_path)


@pytest.mark.parametrize(
    ("projection", "changes", "key"),
    [
        ("relu", {}, None),
        ("relu", {"dense_act_fn": "silu"}, "dense_act_fn"),
        ("relu", {"is_gated_act": True}, "is_gated_act"),
        ("gated-gelu", {}, None),
        ("gated-gelu", {"dense_act_fn": "gelu_pytorch_tanh"}, None),
        ("gated-gelu", {"dense_act_fn": "gelu"}, "dense_act_fn"),
        ("gated-silu", {"dense_act_fn": "swish", "is_gated_act": True}, None),
        ("gated-silu", {"is_gated_act": False}, "is_gated_act"),
    ],
)
def test_keys_that_contradict_the_feed_forward_of_t5_are_named(
    projection: str, changes: dict[str, Any], key: str | None, tmp_path: Path
) -> None:
    """Transformers lets them replace what feed_forward_proj says."""
    folder = saved(stock_model("T5Model", feed_forward_proj=projection), tmp_path / "stock")
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))
    if key is None:
        import_huggingface(folder)
        return
    with pytest.raises(UserError, match=f"{key} is .*feed_forward_proj '{projection}'"):
        import_huggingface(folder)
