"""Analyses of a classifier that reads a lower layer: the layers above have no effect."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.requirements import EMBEDDINGS_ALONE
from bertwright.analysis.core.texts import encode_texts
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.heads.kinds import LinearHeadConfig
from bertwright.tasks.outputs import ClassificationOutput
from bertwright.tasks.task import Task
from bertwright.tasks.task_model import HeadSpec, TaskModel
from experiments.analyses.models import SENTENCES, small_model
from toy_recipes import shaken

LABELS = ("no", "yes")
KINDS = (
    "attention-slopes",
    "attention-explains",
    "learned-masks",
    "layer-redundancy",
    "head-importance",
    "learned-gates",
    "fixed-heads",
)
"""Analyses of predictions."""


def classifier(layers: str) -> AnalysedModel:
    small = small_model()
    head = HeadSpec(LinearHeadConfig(pooling="mean", layers=layers), len(LABELS))
    recipe, tokenizer = small.text_model.model.recipe, small.tokenizer
    model = TaskModel(recipe, tokenizer.vocab_size, head)
    for parameter in model.parameters():
        torch.nn.init.zeros_(parameter)
    model.encoder.load_state_dict(small.encoder.state_dict())
    task = Task("planted", ClassificationOutput(), labels=LABELS)
    fine_tuned = FineTunedModel(shaken(model, 0.1), tokenizer, task, precision="float32")
    return AnalysedModel("planted", fine_tuned)


def inputs_of(layers: str, sentences: Sequence[str] = SENTENCES * 3) -> AnalysisInput:
    model = classifier(layers)
    return AnalysisInput(model, encode_texts(model, [Example(text) for text in sentences]))


@pytest.mark.parametrize("kind", KINDS)
def test_unread_layers_have_no_effect(kind: str) -> None:
    inputs = inputs_of("1")
    assert inputs.model.num_layers > inputs.model.num_layers_read == 1
    analysis = Analysis.parse({"kind": kind})
    assert analysis.not_applicable(inputs) is None
    result = analysis.run(inputs)
    assert all(np.isfinite(f.value) for f in result.findings if f.value is not None)
    if kind == "attention-slopes":
        sizes = result.arrays["gradient_sizes"]
        assert sizes[0].all()
        assert not sizes[1:].any()


@pytest.mark.parametrize("kind", KINDS)
def test_a_head_that_reads_the_embeddings_alone_is_named(kind: str) -> None:
    assert Analysis.parse({"kind": kind}).not_applicable(inputs_of("0")) == EMBEDDINGS_ALONE
