"""A tied tensor is read under any of its names."""

import itertools
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file, save_model
from torch import nn

from bertwright.core.errors import UserError
from bertwright.interop.huggingface.families.registry import FAMILIES
from bertwright.interop.huggingface.importer import import_huggingface
from stock_models import saved, stock_model

TIED = [
    "BertForMaskedLM",
    "BertForPreTraining",
    "RobertaForMaskedLM",
    "XLMRobertaForMaskedLM",
    "ModernBertForMaskedLM",
    "AlbertForPreTraining",
    "ElectraForMaskedLM",
    "DistilBertForMaskedLM",
    "GPT2LMHeadModel",
    "OpenAIGPTLMHeadModel",
    "XLNetLMHeadModel",
    "MobileBertForPreTraining",
    "XLMWithLMHeadModel",
    "LongformerForMaskedLM",
    "BigBirdForMaskedLM",
    "T5ForConditionalGeneration",
    "T5Model",
    "BartForConditionalGeneration",
    "BartModel",
]


def tied_names(model: nn.Module) -> list[list[str]]:
    """The names of every parameter that has several."""
    groups: dict[int, list[str]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if isinstance(tensor, nn.Parameter):
            groups.setdefault(tensor.data_ptr(), []).append(name)
    return [names for names in groups.values() if len(names) > 1]


def parameters(folder: Path) -> dict[str, torch.Tensor]:
    return {
        name: tensor.detach() for name, tensor in import_huggingface(folder)[0].named_parameters()
    }


@pytest.mark.parametrize("architecture", TIED)
def test_a_tied_tensor_is_read_under_any_name(architecture: str, tmp_path: Path) -> None:
    model = stock_model(architecture)
    folder = saved(model, tmp_path / "stock")
    expected = parameters(folder)
    tied = tied_names(model)
    assert tied
    tensors = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    repeated = {name for names in tied for name in names}
    files = [
        {name: t for name, t in tensors.items() if name in kept or name not in repeated}
        for kept in (*itertools.product(*tied), repeated)
    ]
    for file in (None, *files):
        if file is None:
            save_model(model, str(folder / "model.safetensors"))
        else:
            save_file(file, folder / "model.safetensors", metadata={"format": "pt"})
        actual = parameters(folder)
        assert actual.keys() == expected.keys()
        assert all(torch.equal(actual[name], tensor) for name, tensor in expected.items())


def test_every_family_is_covered() -> None:
    assert {stock_model(name).config.model_type for name in TIED} == FAMILIES.keys()


def test_an_untied_table_does_not_replace_the_other(tmp_path: Path) -> None:
    model = stock_model("BertForMaskedLM", tie_word_embeddings=False)
    folder = saved(model, tmp_path / "stock")
    tensors = dict(model.state_dict())
    tensors.pop("bert.embeddings.word_embeddings.weight")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match="do not belong together"):
        import_huggingface(folder)
