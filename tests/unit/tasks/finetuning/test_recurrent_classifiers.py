"""Classifiers of recurrent encoders: the equations of Dai and Le 2015 and of ULMFiT."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from bertwright.core.errors import UserError
from bertwright.models import Model
from bertwright.modules.dropout_rng import DropoutRng, word_dropout
from bertwright.modules.token_tensors import TokenInfo
from bertwright.tasks.catalogue import table_task, tagging_task
from bertwright.tasks.fine_tuned_model import load_fine_tuned_model
from bertwright.tasks.finetuning.dropout import FineTuningDropout
from bertwright.tasks.finetuning.finetune import finetune
from bertwright.tasks.finetuning.linear_gain import linear_gain_loss
from bertwright.tasks.finetuning.truncated_backprop import TruncatedBackpropConfig
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.heads.head import HeadConfig, TaskHead, TaskHeadContext, init_head
from bertwright.tasks.heads.pooling import (
    last_max_mean_pool,
    linear_gain_pool,
    linear_gains,
    pooling_positions,
)
from bertwright.tasks.outputs import OutputType
from small_tasks import classes, tagged
from toy_recipes import VOCABULARY, shaken, toy

TASK = table_task("colours", Columns())
SETTINGS: dict[str, Any] = {"compile": False, "precision": "float32", "calibrate": False}
NO_DROPOUT = {"encoder": 0.0, "mixer": 0.0, "embeddings": 0.0, "head": 0.0}
DOCUMENTS = torch.tensor([[0, 0, 0, -1], [0, 0, 0, 0], [0, 0, -1, -1]])


def build_head(config: dict[str, Any], num_outputs: int = 3, system: str = "awd-lstm") -> TaskHead:
    head = HeadConfig.parse(config).build(TaskHeadContext(toy(system), num_outputs))
    init_head(head, None, 0)
    return head


def test_the_classifier_of_ulmfit() -> None:
    """[h_T; max; mean] -> batch norm -> linear 50 -> ReLU -> batch norm -> linear."""
    head = build_head({"kind": "mlp", "pooling": "last-max-mean"})
    shaken(head, 0.1)
    w = [head.trunk[0].weight, head.trunk[0].bias, head.classifier.weight, head.classifier.bias]
    assert [tuple(t.shape) for t in w] == [(50, 3 * 32), (50,), (3, 50), (3,)]
    states, statistics = (
        torch.randn(3, 4, 32, dtype=torch.float32),
        [torch.zeros(96), torch.ones(96)],
    )
    lengths = [3, 4, 2]
    pooled = torch.stack(
        [
            torch.cat((sequence[n - 1], sequence[:n].amax(0), sequence[:n].mean(0)))
            for sequence, n in zip(states, lengths, strict=True)
        ]
    )

    def norm(x: torch.Tensor, module: Any) -> torch.Tensor:
        variance = x.var(0, unbiased=False)
        return (x - x.mean(0)) / (variance + 1e-5).sqrt() * module.weight + module.bias

    hidden = norm(torch.relu(norm(pooled, head.norm) @ w[0].T + w[1]), head.trunk[2])
    torch.testing.assert_close(head(states, DOCUMENTS), hidden @ w[2].T + w[3])
    statistics[0] += 0.1 * pooled.mean(0)
    torch.testing.assert_close(head.norm.running_mean, statistics[0])
    # In use, and for a batch of one, it normalises by the running statistics.
    one = head.train()(states[:1], DOCUMENTS[:1])
    torch.testing.assert_close(one, head.eval()(states[:1], DOCUMENTS[:1]))


def test_fillers_of_a_batch_do_not_reach_the_batch_norm(pretrained) -> None:
    head = {"kind": "mlp", "pooling": "last-max-mean"}
    # 5 examples in batches of 4: the last batch has one example and three fillers.
    result = finetune(
        pretrained("awd-lstm"), TASK, train=classes()[:5], dev=classes()[:5], head=head,
        epochs=1, batch_size=4, dropout=NO_DROPOUT, learning_rate=1e-9, **SETTINGS,
    )  # fmt: skip
    mean = result.model.task_model.head.norm.running_mean
    features = torch.from_numpy(np.concatenate(result.model.features(classes()[:5])))
    candidates = [0.1 * features[[i for i in range(5) if i != alone]].mean(0) for alone in range(5)]
    assert any(torch.allclose(mean.cpu(), c, atol=1e-4) for c in candidates)


@pytest.mark.parametrize("reads_backward", [False, True])
def test_linear_gain_rises_to_one(reads_backward: bool) -> None:
    is_real = DOCUMENTS >= 0
    gains = [[1 / 3, 2 / 3, 1, 0], [0.25, 0.5, 0.75, 1], [0.5, 1, 0, 0]]
    if reads_backward:
        gains = [[1, 2 / 3, 1 / 3, 0], [1, 0.75, 0.5, 0.25], [1, 0.5, 0, 0]]
    expected = torch.tensor(gains)
    torch.testing.assert_close(linear_gains(is_real, reads_backward), expected)
    states = torch.randn(3, 4, 5)
    mean = (states * expected[..., None]).sum(1) / expected.sum(1, keepdim=True)
    torch.testing.assert_close(linear_gain_pool(states, DOCUMENTS, reads_backward), mean)


@pytest.mark.parametrize("kind", ["class", "labels", "number"])
def test_linear_gain_weights_the_loss_of_every_position(kind: str) -> None:
    decoder = OutputType.parse({"kind": kind}).build_decoder(("a", "b", "c"))
    head = build_head({"kind": "plain", "pooling": "last"}, decoder.num_outputs)
    states = torch.randn(3, 4, 32)
    targets = {
        "class": torch.tensor([2, 0, 1]),
        "labels": torch.tensor([1.0, 0, 1, 0, 0, 1, 1, 1, 0]),
        "number": torch.tensor([0.5, -1.0, 2.0]),
    }[kind]
    outputs, loss = linear_gain_loss(head, decoder, states, DOCUMENTS, targets)
    expected = torch.zeros(())
    for index, length in enumerate([3, 4, 2]):
        target = targets.view(3, -1)[index]
        losses = [
            decoder.loss(head.classifier(states[index, t][None]), [1], target)[0]
            for t in range(length)
        ]
        gains = [(t + 1) / length for t in range(length)]
        expected = expected + sum(g * value for g, value in zip(gains, losses, strict=True)) / sum(
            gains
        )
        torch.testing.assert_close(outputs[index], head.classifier(states[index, length - 1]))
    torch.testing.assert_close(loss, expected)


@pytest.mark.parametrize("system", ["awd-lstm", "awd-lstm-backward"])
def test_text_read_in_chunks_equals_one_pass_and_trains_the_last_ones(system: str) -> None:
    model = shaken(Model.build(toy(system), VOCABULARY).double(), 0.2)
    head = build_head({"kind": "plain", "pooling": "last-max-mean"}, system=system)
    lengths = [11, 4, 7]
    token_ids = torch.randint(5, VOCABULARY, (3, 12), generator=torch.Generator().manual_seed(0))
    documents = torch.stack([torch.where(torch.arange(12) < n, 0, -1) for n in lengths])
    info = replace(TokenInfo.from_token_ids(token_ids), document_ids=documents)
    whole = model.encoder(token_ids, info)
    inputs: list[torch.Tensor] = []

    def record_input(x: torch.Tensor) -> torch.Tensor:
        inputs.append(x.detach().requires_grad_())
        return inputs[-1]

    config = TruncatedBackpropConfig(length=3, chunks=2)
    with model.replace("embeddings.output", record_input):
        states = config.hidden_states(model.encoder, head.layers, token_ids, info)
    real = documents >= 0
    torch.testing.assert_close(states[real], whole[real])
    head.pool(states, documents).sum().backward()
    is_backward = system == "awd-lstm-backward"
    parts = inputs[::-1] if is_backward else inputs
    has_gradient = [
        [part.grad is not None and bool(part.grad[row].abs().sum() > 0) for row in range(3)]
        for part in parts
    ]
    # Chunks of the sequences: 4, 2 and 3; the two that are read last have gradients.
    ahead = [[0, 1, 0], [0, 1, 1], [1, 0, 1], [1, 0, 0]]
    back = [[1, 1, 1], [1, 1, 1], [0, 0, 0], [0, 0, 0]]
    assert has_gradient == [[bool(x) for x in row] for row in (back if is_backward else ahead)]


def test_a_backward_model_is_read_at_its_last_step() -> None:
    token_ids = torch.zeros(3, 4, dtype=torch.int64)
    assert pooling_positions("last", token_ids, DOCUMENTS, None, True).tolist() == [0, 4, 8]
    states = torch.randn(3, 4, 5)
    assert torch.equal(last_max_mean_pool(states, DOCUMENTS, True)[:, :5], states[:, 0])
    assert build_head(
        {"kind": "plain", "pooling": "last"}, system="awd-lstm-backward"
    ).reads_backward


def test_dropout_of_single_parts_and_everywhere() -> None:
    recipe = toy("awd-lstm")
    rates = {"encoder": {"input": 0.4, "hidden": 0.3, "output": 0.2}, "mixer": 0.5, "words": 0.1}
    changed = FineTuningDropout.model_validate(rates).apply_to(recipe).encoder
    assert changed.dropout.model_dump() == rates["encoder"]
    assert (changed.mixer.dropout, changed.embeddings.word_dropout) == (0.5, 0.1)
    assert changed.embeddings.embedding_dropout == recipe.encoder.embeddings.embedding_dropout
    everywhere = FineTuningDropout.everywhere(0.2, recipe)
    assert everywhere.apply_to(recipe).encoder.dropout.model_dump() == dict.fromkeys(
        ("input", "hidden", "output"), 0.2
    )
    assert FineTuningDropout.everywhere(0.2, toy("bert")).encoder == everywhere.head == 0.2


def test_word_dropout_drops_positions() -> None:
    x = torch.randn(40, 50, 3)
    dropped = word_dropout(x, 0.3, DropoutRng.for_step(0, 1), 2)
    is_dropped = (dropped == 0).all(-1)
    assert torch.equal(dropped[~is_dropped], x[~is_dropped])
    assert 0.25 < float(is_dropped.double().mean()) < 0.35


@pytest.mark.parametrize(
    ("system", "settings", "message"),
    [
        ("bert", {"truncated_backprop": {}}, "of a recurrent encoder with one direction"),
        ("elmo", {"truncated_backprop": {}}, "of a recurrent encoder with one direction"),
        ("awd-lstm", {"truncated_backprop": {}, "adaptation": "frozen"}, "the encoder is frozen"),
        (
            "awd-lstm",
            {"linear_gain": True, "head": {"pooling": "mean"}},
            "set head.pooling to last",
        ),
        ("awd-lstm", {"linear_gain": True, "adaptation": "frozen"}, "another adaptation than"),
    ],
)
def test_settings_that_do_not_fit_are_refused(pretrained, system, settings, message) -> None:
    with pytest.raises(UserError, match=message):
        finetune(pretrained(system), TASK, train=classes(), dev=classes(), **SETTINGS, **settings)


def test_linear_gain_does_not_label_tokens(pretrained) -> None:
    with pytest.raises(UserError, match="output type tags does not label texts"):
        finetune(
            pretrained("awd-lstm"), tagging_task("t"), train=tagged(), dev=tagged(),
            linear_gain=True, **SETTINGS,
        )  # fmt: skip


@pytest.mark.parametrize("system", ["awd-lstm", "awd-lstm-backward"])
def test_the_published_devices_learn_together(pretrained, system: str, tmp_path: Path) -> None:
    result = finetune(
        pretrained(system), TASK, train=classes(), dev=classes(), epochs=8, batch_size=8,
        learning_rate=2e-2, head={"kind": "mlp", "pooling": "last-max-mean"},
        adaptation="gradual", schedule="slanted-triangle", beta_1=0.7, beta_2=0.99,
        dropout={"embeddings": 0.0, "words": 0.1}, truncated_backprop={"length": 4, "chunks": 2},
        output=tmp_path / "m",
        **SETTINGS,
    )  # fmt: skip
    assert result.scores[0] > 0.9
    assert load_fine_tuned_model(tmp_path / "m").predict(classes()) == result.model.predict(
        classes()
    )


def test_batch_norm_is_that_of_pytorch() -> None:
    head = build_head({"kind": "mlp", "pooling": "last-max-mean"})
    reference = nn.BatchNorm1d(96)
    for _ in range(3):
        x = torch.randn(6, 96)
        torch.testing.assert_close(head.norm(x), reference(x))
    torch.testing.assert_close(head.norm.running_var, reference.running_var)
