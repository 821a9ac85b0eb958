"""Knowledge adapters: the equations of K-Adapter, a frozen encoder, and adapters read together."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from bertwright.core.errors import UserError
from bertwright.encoder.config import EncoderConfig
from bertwright.encoder.knowledge_adapter import (
    KnowledgeAdapter,
    KnowledgeAdapterShape,
    num_heads,
)
from bertwright.models.layer_selection import LayerSelection
from bertwright.modules.token_tensors import TokenInfo
from bertwright.tasks.adapters import KnowledgeAdaptersConfig
from bertwright.tasks.catalogue import table_task, tagging_task
from bertwright.tasks.data.task_data import TaskData
from bertwright.tasks.fine_tuned_model import load_fine_tuned_model
from bertwright.tasks.finetuning.finetune import FineTuningResult, finetune
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.outputs import OutputType
from bertwright.tasks.task import Task
from bertwright.tasks.tuning.learning_curve import PRETRAINED, compute_learning_curve
from small_tasks import attached, classes, similar, tagged
from torch_layers import torch_layer

CLASSES, TAGS = table_task("colours", Columns()), tagging_task("things")
HEADS = Task("heads", OutputType.parse("head"))
NEW = {"kind": "knowledge-adapters", "layers": [0, 2], "width": 8, "depth": 1}


def tuned(model: Any, task: Task, examples: Any, adaptation: Any, **settings: Any):
    defaults = {"epochs": 1, "compile": False, "dropout": 0.0, "batch_size": 8}
    return finetune(
        model, task, train=examples, dev=examples, adaptation=adaptation, **{**defaults, **settings}
    )


def encoder_weights(model: Any) -> dict[str, Tensor]:
    return {n: p for n, p in model.named_parameters() if not n.startswith("knowledge_adapters")}


@pytest.fixture
def source(pretrained):
    return pretrained("bert")


@pytest.fixture
def trained(source, tmp_path: Path) -> dict[str, FineTuningResult]:
    """Return two models with a knowledge adapter each, saved as ``words`` and ``tree``."""
    return {
        "words": tuned(source, TAGS, tagged(), NEW, output=tmp_path / "words"),
        "tree": tuned(
            source, HEADS, attached(), {**NEW, "layers": [1]}, output=tmp_path / "tree", seed=3
        ),
    }


def test_number_of_parameters_of_the_published_adapter() -> None:
    """Three adapter layers of two transformer layers of 768 units beside RoBERTa-large."""
    encoder = EncoderConfig(width=1024)
    shape = KnowledgeAdapterShape(layers=(1, 12, 24), depth=2, width=768)
    with torch.device("meta"):
        adapter = KnowledgeAdapter(shape, encoder)
    transformer = 12 * 768**2 + 13 * 768
    projections = 2 * 1024 * 768 + 768 + 1024
    assert sum(p.numel() for p in adapter.parameters()) == 3 * (projections + 2 * transformer)
    assert 3 * 2 * transformer == 42_527_232  # "about 42M" (section 3.1)
    assert (num_heads(768), num_heads(48), num_heads(96), num_heads(320)) == (12, 1, 1, 5)


def test_default_layers_are_those_of_the_paper() -> None:
    layers = {
        depth: KnowledgeAdaptersConfig()
        .shape(EncoderConfig.model_validate({"depth": {"kind": "stack", "layers": depth}}))
        .layers
        for depth in (1, 2, 12, 24)
    }
    assert layers == {1: (1,), 2: (1, 2), 12: (1, 6, 12), 24: (1, 12, 24)}


def test_adapter_adds_what_the_equations_say(source, trained) -> None:
    """x_k = h_k + y_{k-1}; y_k = x_k + up(transformer(down(x_k))), with PyTorch's own layer."""
    encoder = trained["words"].model.task_model.encoder
    (adapter,) = encoder.knowledge_adapters
    tokens = torch.tensor([[1, 5, 9, 14, 2, 0, 0]])
    documents = torch.tensor([[0, 0, 0, 0, 0, -1, -1]])
    info = replace(TokenInfo.from_token_ids(tokens), document_ids=documents)
    selection = LayerSelection((2,), "concat", 2 * 32, num_adapters=1)
    with torch.no_grad():
        states = [
            LayerSelection((n,), "concat", 32).hidden_states(encoder, tokens, info) for n in (0, 2)
        ]
        both = selection.hidden_states(encoder, tokens, info)
        output = torch.zeros_like(states[0])
        for state, layer in zip(states, adapter.layers, strict=True):
            x = state + output
            (block,) = layer.transformer
            transformer = torch_layer(block, layer.num_heads)
            output = x + layer.up(transformer(layer.down(x), None, tokens == 0))
    width = states[0].shape[-1]
    assert torch.allclose(both[0, :5, :width], output[0, :5], atol=1e-5)
    assert torch.equal(both[..., width:], states[1])


def test_encoder_is_frozen_and_the_adapter_is_trained(source, trained) -> None:
    untrained = tuned(source, TAGS, tagged(), NEW, epochs=0).model.task_model.encoder
    encoder, before = trained["words"].model.task_model.encoder, source.model.encoder
    for name, weight in encoder_weights(encoder).items():
        assert torch.equal(weight, before.get_parameter(name)), name
    for name, weight in encoder.knowledge_adapters.named_parameters():
        if name.endswith("weight"):
            assert not torch.equal(weight, untrained.knowledge_adapters.get_parameter(name)), name


def test_adapters_read_together_give_what_each_gives_alone(source, trained, tmp_path: Path) -> None:
    folders = [str(tmp_path / name) for name in ("words", "tree")]
    fusion = {"kind": "knowledge-fusion", "adapters": folders}
    encoder = tuned(source, CLASSES, classes(), fusion, epochs=0).model.task_model.encoder
    tokens = torch.arange(12).view(2, 6) + 4
    with torch.no_grad():
        together = LayerSelection((2,), "concat", 0, num_adapters=2).hidden_states(
            encoder, tokens, TokenInfo.from_token_ids(tokens)
        )
        alone = [
            LayerSelection((2,), "concat", 0, num_adapters=1).hidden_states(
                trained[name].model.task_model.encoder, tokens, TokenInfo.from_token_ids(tokens)
            )
            for name in ("words", "tree")
        ]
    width = source.model.recipe.encoder.width
    expected = torch.cat((alone[0][..., :width], alone[1]), dim=-1)
    assert torch.equal(together, expected)


def test_fusion_trains_the_encoder_and_keeps_the_adapters(source, trained, tmp_path: Path) -> None:
    folders = [str(tmp_path / name) for name in ("words", "tree")]
    fusion = {"kind": "knowledge-fusion", "adapters": folders}
    result = tuned(source, CLASSES, classes(), fusion, output=tmp_path / "both")
    encoder = result.model.task_model.encoder
    for adapter, name in zip(encoder.knowledge_adapters, trained, strict=True):
        (trained_adapter,) = trained[name].model.task_model.encoder.knowledge_adapters
        for parameter, weight in trained_adapter.state_dict().items():
            assert torch.equal(adapter.state_dict()[parameter], weight)
    changed = encoder.blocks[0].sublayers["attention"].projection.weight
    assert not torch.equal(
        changed, source.model.encoder.blocks[0].sublayers["attention"].projection.weight
    )
    for name in trained:  # a finished model needs no other folder
        (tmp_path / name).rename(tmp_path / f"{name}-moved")
    again = load_fine_tuned_model(tmp_path / "both")
    assert again.predict(classes()) == result.model.predict(classes())


def test_adapters_beside_shared_blocks_are_read_again(pretrained, tmp_path: Path) -> None:
    source, new = pretrained("albert"), {"kind": "knowledge-adapters", "width": 8, "depth": 1}
    tuned(source, TAGS, tagged(), new, output=tmp_path / "words")
    fusion = {"kind": "knowledge-fusion", "adapters": [str(tmp_path / "words")]}
    result = tuned(source, CLASSES, classes(), fusion, output=tmp_path / "both")
    again = load_fine_tuned_model(tmp_path / "both")
    assert again.predict(classes()) == result.model.predict(classes())
    with pytest.raises(UserError, match="beside another encoder"):
        tuned(pretrained("albert", "seed=5"), CLASSES, classes(), fusion)


def test_what_does_not_fit_is_refused(pretrained, source, trained, tmp_path: Path) -> None:
    words = str(tmp_path / "words")
    plain = tmp_path / "plain"
    tuned(source, TAGS, tagged(), "full", output=plain, epochs=0)
    fusion = {"kind": "knowledge-fusion", "adapters": [words]}
    similarity = Task("close", OutputType.parse({"kind": "similarity", "max_label": 5.0}))
    refused: list[tuple[Any, Task, Any, Any, str]] = [
        (source, TAGS, tagged(), {**NEW, "layers": [3]}, "no layer 3: the encoder has 0"),
        (pretrained("elmo"), TAGS, tagged(), NEW, "read the layers of a transformer"),
        (source, similarity, similar(), NEW, "similarity reads the encoder alone"),
        (source, TAGS, tagged(), {**fusion, "adapters": [str(plain)]}, "no knowledge adapters"),
        (source, TAGS, tagged(), {**fusion, "adapters": [str(tmp_path)]}, "not a fine-tuned"),
        (pretrained("bert", "seed=5"), TAGS, tagged(), fusion, "beside another encoder"),
        (trained["words"].model, TAGS, tagged(), "full", r"knowledge_adapters.* would lose"),
    ]
    for model, task, examples, adaptation, message in refused:
        with pytest.raises(UserError, match=message):
            tuned(model, task, examples, adaptation)
    with pytest.raises(UserError, match=r"head\.mix: added features are concatenated"):
        tuned(source, TAGS, tagged(), NEW, head={"layers": "1,2", "mix": "learned"})


def test_a_learning_curve_reads_an_adapter_as_finetune_does(pretrained) -> None:
    # The default head of a pre-norm encoder, a transform, cannot read added features.
    source, settings = pretrained("modern"), {"adaptation": NEW, "epochs": 1, "compile": False}
    examples = classes()
    data = TaskData(CLASSES, train=examples, dev=examples)
    curve = compute_learning_curve(source, data, [None], settings=settings)
    direct = finetune(source, CLASSES, train=examples, dev=examples, **settings)
    assert curve.scores[PRETRAINED][len(examples)] == direct.scores
