"""What a stock folder may hold, and what it may not."""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from stock import PADDED, coordinates, rows, saved, stock_model, wordpiece

from bertwright.errors import UserError
from bertwright.interop.huggingface import import_folder, is_huggingface
from bertwright.model.folder import load_model, save_model
from bertwright.recipes import Recipe


def folder_of(path: Path, architecture: str = "BertForMaskedLM", **config: Any) -> Path:
    return saved(stock_model(architecture), path / "stock", **config)


def rewrite(folder: Path, change: Any) -> None:
    """Change the tensors of a folder."""
    file = folder / "model.safetensors"
    save_file(change(load_file(file)), file, metadata={"format": "pt"})


def test_a_bare_encoder_has_no_objectives_and_keeps_its_pooler(tmp_path: Path) -> None:
    model, _ = import_folder(folder_of(tmp_path, "BertModel"))
    assert model.recipe.objectives == {}
    assert model.output is None
    assert model.pooler is not None


def test_every_axis_is_stated(tmp_path: Path) -> None:
    recipe = import_folder(folder_of(tmp_path, "BertForPreTraining"))[0].recipe
    assert recipe.name == "bert-imported"
    assert set(recipe.objectives) == {"masked", "next-sentence"}
    assert Recipe.model_validate(recipe.as_dict()) == recipe


def test_an_imported_model_is_saved_and_loaded(tmp_path: Path) -> None:
    model, tokenizer = import_folder(folder_of(tmp_path, "BertModel"))
    save_model(tmp_path / "ours", model, tokenizer)
    again, _ = load_model(tmp_path / "ours")
    for name, parameter in again.named_parameters():
        assert torch.equal(parameter, dict(model.named_parameters())[name]), name


def test_rows_beyond_the_pieces_are_kept(tmp_path: Path) -> None:
    size = wordpiece().get_vocab_size() + 13
    stock = stock_model("BertForMaskedLM", vocab_size=size)
    model, tokenizer = import_folder(saved(stock, tmp_path / "stock"))
    assert (model.vocabulary_size, tokenizer.size) == (size, size - 13)
    save_model(tmp_path / "ours", model, tokenizer)
    assert load_model(tmp_path / "ours")[0].vocabulary_size == size


def test_pieces_beyond_the_rows_are_refused(tmp_path: Path) -> None:
    stock = stock_model("BertForMaskedLM", vocab_size=40)
    with pytest.raises(UserError, match="do not belong together"):
        import_folder(saved(stock, tmp_path / "stock"))


def test_names_converted_from_tensorflow_and_buffers(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    expected, _ = import_folder(folder)

    def aged(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        old = {
            name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
                "LayerNorm.bias", "LayerNorm.beta"
            ): tensor
            for name, tensor in tensors.items()
        }
        return {**old, "bert.embeddings.position_ids": torch.arange(16)[None]}

    rewrite(folder, aged)
    found, _ = import_folder(folder)
    for name, parameter in found.named_parameters():
        assert torch.equal(parameter, dict(expected.named_parameters())[name]), name


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda table: table.index_fill(0, torch.tensor([3]), torch.nan), "holds NaN or infinity"),
        (lambda table: table.index_fill(0, torch.tensor([3]), torch.inf).half(), "holds NaN or"),
        (lambda table: table.to(torch.int8), "holds int8 numbers"),
        (lambda table: table[:, :-1].contiguous(), "has shape"),
    ],
)
def test_weights_that_are_no_numbers_of_their_shape_are_refused(
    change: Callable[[torch.Tensor], torch.Tensor], message: str, tmp_path: Path
) -> None:
    folder, name = folder_of(tmp_path), "bert.embeddings.position_embeddings.weight"
    rewrite(folder, lambda tensors: {**tensors, name: change(tensors[name])})
    with pytest.raises(UserError, match=message):
        import_folder(folder)


def test_a_tied_table_that_is_stored_twice_is_one(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
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
    assert import_folder(folder)[0].recipe.output.kind == "tied"


def test_tables_that_differ_are_two(tmp_path: Path) -> None:
    """As the stock class has it, whatever config.json says."""
    folder = folder_of(tmp_path)
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
    ours, _ = import_folder(folder)
    pieces, real = rows(ours.vocabulary_size, PADDED, 0)
    with torch.inference_mode():
        expected = stock(pieces, attention_mask=real.long()).logits[real]
        torch.testing.assert_close(
            ours.logits(ours(pieces, coordinates(real))[real]), expected, rtol=1e-5, atol=1e-5
        )


def test_weights_in_several_files(tmp_path: Path) -> None:
    stock = stock_model("BertForMaskedLM")
    stock.save_pretrained(tmp_path / "stock", max_shard_size="20KB")
    assert len(list((tmp_path / "stock").glob("*.safetensors"))) > 1
    wordpiece().save(str(tmp_path / "stock" / "tokenizer.json"))
    ours, _ = import_folder(tmp_path / "stock")
    table = stock.get_input_embeddings().weight
    assert torch.equal(ours.embedding, table)


def test_weights_in_half_precision_become_float32(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    rewrite(folder, lambda tensors: {n: t.bfloat16() for n, t in tensors.items()})
    assert {p.dtype for p in import_folder(folder)[0].parameters()} == {torch.float32}


def test_the_old_spelling_of_modernbert(tmp_path: Path) -> None:
    """Configurations of Transformers 4.48 state the rotary bases and global layers otherwise."""
    folder = folder_of(tmp_path, "ModernBertForMaskedLM")
    config = json.loads((folder / "config.json").read_text())
    del config["rope_parameters"], config["layer_types"]
    config |= {"global_attn_every_n_layers": 1, "global_rope_theta": 123.0}
    (folder / "config.json").write_text(json.dumps(config))
    assert import_folder(folder)[0].recipe.encoder.positions.base == 123.0


@pytest.mark.parametrize(
    ("said", "bases"),
    [
        ({}, (160_000.0, 10_000.0)),
        ({"rope_scaling": {"rope_theta": 77.0}}, (77.0, 77.0)),
        ({"rope_scaling": {"rope_theta": 77.0}, "global_rope_theta": 5.0}, (77.0, 77.0)),
        ({"rope_scaling": {"rope_type": "default"}, "local_rope_theta": 6.0}, (160_000.0, 6.0)),
        ({"rope_parameters": {"full_attention": {"rope_theta": 3.0}}}, (3.0, 10_000.0)),
    ],
)
def test_the_bases_of_modernbert_are_those_of_the_stock_class(
    said: dict[str, Any], bases: tuple[float, float], tmp_path: Path
) -> None:
    assert bases_of(tmp_path, said) == bases
    stock = transformers.AutoConfig.from_pretrained(tmp_path / "stock").rope_parameters
    kinds = ("full_attention", "sliding_attention")
    assert tuple(stock[kind]["rope_theta"] for kind in kinds) == bases


def test_windows_of_modernbert_without_a_base_have_that_of_the_others(tmp_path: Path) -> None:
    """As Transformers 4.48 read it; those of today have no angles there."""
    said = {"global_rope_theta": 5.0, "local_rope_theta": None}
    assert bases_of(tmp_path, said) == (5.0, 5.0)


def bases_of(path: Path, said: dict[str, Any]) -> tuple[float, float]:
    """The bases of a ModernBERT whose configuration says this of them and nothing else."""
    folder = folder_of(path, "ModernBertModel")
    config = json.loads((folder / "config.json").read_text())
    del config["rope_parameters"], config["layer_types"]
    config |= {"global_attn_every_n_layers": 3, **said}
    (folder / "config.json").write_text(json.dumps(config))
    encoder = import_folder(folder)[0].recipe.encoder
    return encoder.positions.base, encoder.local_positions.base


@pytest.mark.parametrize(
    ("architecture", "config", "reason"),
    [
        ("BertModel", {"model_type": "t6"}, "t6.*bert, .*modernbert, .*roberta"),
        ("ElectraForPreTraining", {"hidden_act": "relu"}, "only gelu can be read"),
        ("BertModel", {"hidden_act": "quick_gelu"}, "hidden_act is 'quick_gelu'"),
        ("BertModel", {"position_embedding_type": "relative_key"}, "position_embedding_type"),
        ("BertModel", {"is_decoder": True}, "is_decoder is True"),
        ("BertModel", {"hidden_size": "wide"}, "hidden_size: must be a whole number"),
        ("BertModel", {"hidden_size": 64}, "the recipe asks for"),
        ("BertModel", {"num_hidden_layers": 4}, r"lacks the parameter encoder\.blocks\.3\."),
        (
            "ModernBertModel",
            {"layer_types": ["full_attention", "full_attention", "sliding_attention"]},
            "layer_types see windows",
        ),
        ("LongformerModel", {"attention_dilation": [1, 2, 1]}, "only windows without gaps can be"),
    ],
)
def test_what_has_no_place_among_the_axes_is_named(
    architecture: str, config: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=reason) as error:
        import_folder(folder_of(tmp_path, architecture, **config))
    assert str(tmp_path / "stock") in str(error.value)


def test_pickles_are_refused(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(UserError, match=r"pytorch_model\.bin, which can run code when read"):
        import_folder(folder)


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
def test_a_damaged_folder_is_named(
    name: str, content: bytes | None, reason: str, tmp_path: Path
) -> None:
    folder = folder_of(tmp_path)
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_bytes(content)
    with pytest.raises(UserError, match=reason) as error:
        import_folder(folder)
    assert str(folder) in str(error.value)


def test_a_head_that_is_not_known_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="classifier"):
        import_folder(folder_of(tmp_path, "DistilBertForMultipleChoice"))


def test_which_folders_are_stock_ones(tmp_path: Path) -> None:
    assert is_huggingface(folder_of(tmp_path))
    assert not is_huggingface(tmp_path)
