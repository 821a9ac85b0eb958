"""Which stock folders can be imported, and which are refused."""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from bertwright.core.errors import UserError
from bertwright.interop.huggingface import is_huggingface_folder
from bertwright.interop.huggingface.importer import import_huggingface
from bertwright.models.saving import load_model, save_model
from bertwright.recipes import Recipe
from stock_models import PADDED, random_batch, saved, stock_model, token_info, wordpiece


def make_folder(path: Path, architecture: str = "BertForMaskedLM", **config: Any) -> Path:
    return saved(stock_model(architecture), path / "stock", **config)


def rewrite(folder: Path, change: Any) -> None:
    """Change the tensors of a folder."""
    file = folder / "model.safetensors"
    save_file(change(load_file(file)), file, metadata={"format": "pt"})


def test_a_bare_encoder_has_no_objectives_and_keeps_its_pooler(tmp_path: Path) -> None:
    model, _ = import_huggingface(make_folder(tmp_path, "BertModel"))
    assert model.recipe.objectives == {}
    assert model.output is None
    assert model.pooler is not None


def test_every_axis_is_set(tmp_path: Path) -> None:
    recipe = import_huggingface(make_folder(tmp_path, "BertForPreTraining"))[0].recipe
    assert recipe.name == "bert-imported"
    assert set(recipe.objectives) == {"masked", "next-sentence"}
    assert Recipe.model_validate(recipe.as_dict()) == recipe


def test_an_imported_model_is_saved_and_loaded(tmp_path: Path) -> None:
    model, tokenizer = import_huggingface(make_folder(tmp_path, "BertModel"))
    save_model(tmp_path / "ours", model, tokenizer)
    reloaded, _ = load_model(tmp_path / "ours")
    for name, parameter in reloaded.named_parameters():
        assert torch.equal(parameter, dict(model.named_parameters())[name]), name


def test_embeddings_beyond_the_vocabulary_are_kept(tmp_path: Path) -> None:
    size = wordpiece().get_vocab_size() + 13
    stock = stock_model("BertForMaskedLM", vocab_size=size)
    model, tokenizer = import_huggingface(saved(stock, tmp_path / "stock"))
    assert (model.vocab_size, tokenizer.vocab_size) == (size, size - 13)
    save_model(tmp_path / "ours", model, tokenizer)
    assert load_model(tmp_path / "ours")[0].vocab_size == size


def test_tokens_without_embeddings_are_refused(tmp_path: Path) -> None:
    stock = stock_model("BertForMaskedLM", vocab_size=40)
    with pytest.raises(UserError, match="do not belong together"):
        import_huggingface(saved(stock, tmp_path / "stock"))


def test_names_converted_from_tensorflow_and_buffers(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    expected, _ = import_huggingface(folder)

    def with_legacy_names(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        renamed = {
            name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
                "LayerNorm.bias", "LayerNorm.beta"
            ): tensor
            for name, tensor in tensors.items()
        }
        return {**renamed, "bert.embeddings.position_ids": torch.arange(16)[None]}

    rewrite(folder, with_legacy_names)
    actual, _ = import_huggingface(folder)
    for name, parameter in actual.named_parameters():
        assert torch.equal(parameter, dict(expected.named_parameters())[name]), name


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda table: table.index_fill(0, torch.tensor([3]), torch.nan), "holds NaN or infinity"),
        (lambda table: table.index_fill(0, torch.tensor([3]), torch.inf).half(), "holds NaN or"),
        (lambda table: table.to(torch.int8), "has dtype int8"),
        (lambda table: table[:, :-1].contiguous(), "has shape"),
    ],
)
def test_invalid_weights_are_refused(
    change: Callable[[torch.Tensor], torch.Tensor], message: str, tmp_path: Path
) -> None:
    folder, name = make_folder(tmp_path), "bert.embeddings.position_embeddings.weight"
    rewrite(folder, lambda tensors: {**tensors, name: change(tensors[name])})
    with pytest.raises(UserError, match=message):
        import_huggingface(folder)


def test_a_tied_table_stored_twice_is_tied(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    rewrite(
        folder,
        lambda tensors: (
            tensors
            | {
                "cls.predictions.decoder.weight": tensors["bert.embeddings.word_embeddings.weight"]
                + 0,
                "cls.predictions.decoder.bias": tensors["cls.predictions.bias"] + 0,
            }
        ),
    )
    assert import_huggingface(folder)[0].recipe.output.kind == "tied"


def test_different_tables_are_untied(tmp_path: Path) -> None:
    """As in the stock class, whatever config.json states."""
    folder = make_folder(tmp_path)
    rewrite(
        folder,
        lambda tensors: (
            tensors
            | {
                "cls.predictions.decoder.weight": tensors["bert.embeddings.word_embeddings.weight"]
                + 1,
                "cls.predictions.decoder.bias": tensors["cls.predictions.bias"] + 1,
            }
        ),
    )
    logging.disable(logging.WARNING)
    stock = type(stock_model("BertForMaskedLM")).from_pretrained(folder).eval()
    logging.disable(logging.NOTSET)
    ours, _ = import_huggingface(folder)
    token_ids, mask = random_batch(ours.vocab_size, PADDED, 0)
    with torch.inference_mode():
        expected = stock(token_ids, attention_mask=mask.long()).logits[mask]
        torch.testing.assert_close(
            ours.logits(ours(token_ids, token_info(mask))[mask]), expected, rtol=1e-5, atol=1e-5
        )


def test_sharded_weights(tmp_path: Path) -> None:
    stock = stock_model("BertForMaskedLM")
    stock.save_pretrained(tmp_path / "stock", max_shard_size="20KB")
    assert len(list((tmp_path / "stock").glob("*.safetensors"))) > 1
    wordpiece().save(str(tmp_path / "stock" / "tokenizer.json"))
    ours, _ = import_huggingface(tmp_path / "stock")
    table = stock.get_input_embeddings().weight
    assert torch.equal(ours.embedding_table, table)


def test_weights_in_half_precision_become_float32(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    rewrite(folder, lambda tensors: {name: tensor.bfloat16() for name, tensor in tensors.items()})
    assert {parameter.dtype for parameter in import_huggingface(folder)[0].parameters()} == {
        torch.float32
    }


def test_legacy_keys_of_modernbert(tmp_path: Path) -> None:
    """Transformers 4.48 has other keys for rotary bases and global layers."""
    folder = make_folder(tmp_path, "ModernBertForMaskedLM")
    config = json.loads((folder / "config.json").read_text())
    del config["rope_parameters"], config["layer_types"]
    config |= {"global_attn_every_n_layers": 1, "global_rope_theta": 123.0}
    (folder / "config.json").write_text(json.dumps(config))
    assert import_huggingface(folder)[0].recipe.encoder.positions.base == 123.0


@pytest.mark.parametrize(
    ("config", "bases"),
    [
        ({}, (160_000.0, 10_000.0)),
        ({"rope_scaling": {"rope_theta": 77.0}}, (77.0, 77.0)),
        ({"rope_scaling": {"rope_theta": 77.0}, "global_rope_theta": 5.0}, (77.0, 77.0)),
        ({"rope_scaling": {"rope_type": "default"}, "local_rope_theta": 6.0}, (160_000.0, 6.0)),
        ({"rope_parameters": {"full_attention": {"rope_theta": 3.0}}}, (3.0, 10_000.0)),
    ],
)
def test_rotary_bases_of_modernbert_equal_the_stock_class(
    config: dict[str, Any], bases: tuple[float, float], tmp_path: Path
) -> None:
    assert rotary_bases(tmp_path, config) == bases
    stock = transformers.AutoConfig.from_pretrained(tmp_path / "stock").rope_parameters
    layer_types = ("full_attention", "sliding_attention")
    assert tuple(stock[kind]["rope_theta"] for kind in layer_types) == bases


def test_modernbert_windows_without_a_base_use_the_global_one(tmp_path: Path) -> None:
    """As in Transformers 4.48; current versions have no rotary positions there."""
    config = {"global_rope_theta": 5.0, "local_rope_theta": None}
    assert rotary_bases(tmp_path, config) == (5.0, 5.0)


def rotary_bases(path: Path, rope_config: dict[str, Any]) -> tuple[float, float]:
    """The rotary bases of a ModernBERT with these keys only."""
    folder = make_folder(path, "ModernBertModel")
    config = json.loads((folder / "config.json").read_text())
    del config["rope_parameters"], config["layer_types"]
    config |= {"global_attn_every_n_layers": 3, **rope_config}
    (folder / "config.json").write_text(json.dumps(config))
    encoder = import_huggingface(folder)[0].recipe.encoder
    return encoder.positions.base, encoder.sliding_window_positions.base


@pytest.mark.parametrize(
    ("architecture", "config", "reason"),
    [
        ("BertModel", {"model_type": "t6"}, "t6.*bert, .*modernbert, .*roberta"),
        ("ElectraForPreTraining", {"hidden_act": "relu"}, "only gelu is supported"),
        ("BertModel", {"hidden_act": "quick_gelu"}, "hidden_act is 'quick_gelu'"),
        ("BertModel", {"position_embedding_type": "relative_key"}, "position_embedding_type"),
        ("BertModel", {"is_decoder": True}, "is_decoder is True"),
        ("BertModel", {"hidden_size": "wide"}, "hidden_size: must be a whole number"),
        ("BertModel", {"hidden_size": 64}, "the recipe needs"),
        ("BertModel", {"num_hidden_layers": 4}, r"lacks the parameter encoder\.blocks\.3\."),
        (
            "ModernBertModel",
            {"layer_types": ["full_attention", "full_attention", "sliding_attention"]},
            "layer_types must have full attention",
        ),
        ("LongformerModel", {"attention_dilation": [1, 2, 1]}, "only windows without gaps are"),
    ],
)
def test_unsupported_configurations_are_refused(
    architecture: str, config: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=reason) as error:
        import_huggingface(make_folder(tmp_path, architecture, **config))
    assert str(tmp_path / "stock") in str(error.value)


def test_pickles_are_refused(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(UserError, match=r"pytorch_model\.bin, which can run code when loaded"):
        import_huggingface(folder)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("model.safetensors", b"\x10", "damaged"),
        ("model.safetensors", None, "it has no weights"),
        ("config.json", b"{", "is not JSON"),
        ("config.json", None, "is no Hugging Face folder"),
        ("tokenizer.json", b"{", "is not a tokenizer"),
        ("tokenizer.json", None, "holds no tokenizer"),
    ],
)
def test_a_damaged_folder_is_reported(
    name: str, content: bytes | None, reason: str, tmp_path: Path
) -> None:
    folder = make_folder(tmp_path)
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_bytes(content)
    with pytest.raises(UserError, match=reason) as error:
        import_huggingface(folder)
    assert str(folder) in str(error.value)


def test_an_unknown_head_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="classifier"):
        import_huggingface(make_folder(tmp_path, "DistilBertForMultipleChoice"))


def test_stock_folders_are_recognised(tmp_path: Path) -> None:
    assert is_huggingface_folder(make_folder(tmp_path))
    assert not is_huggingface_folder(tmp_path)
