"""ELMo as features: the learned mix of layers, beside word vectors of the task."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from bertwright.core.errors import UserError
from bertwright.models.saving import save_model
from bertwright.tasks.catalogue import tagging_task
from bertwright.tasks.fine_tuned_model import load_fine_tuned_model
from bertwright.tasks.finetuning.finetune import FineTuningResult, finetune
from bertwright.tasks.heads.head import HeadConfig, TaskHeadContext, init_head
from bertwright.tasks.heads.layers import LayerMix
from small_tasks import tagged
from toy_recipes import VOCABULARY, shaken, toy

TASK = tagging_task("colours")
HEAD = {"kind": "bilstm", "width": 32, "depth": 1, "layers": "0-2", "mix": "learned"}


def feature_based(model, head: dict[str, Any], **settings: Any) -> FineTuningResult:
    return finetune(
        model, TASK, train=tagged(), dev=tagged(), adaptation="frozen", head=head, dropout=0.0,
        weight_decay=0.0, batch_size=8, precision="float32", calibrate=False,
        **{"epochs": 2, "learning_rate": 2e-2, **settings},
    )  # fmt: skip


@pytest.mark.parametrize("is_normed", [False, True])
def test_the_mix_is_gain_times_a_softmax_of_scalars(is_normed: bool) -> None:
    mix = LayerMix("learned", 3, 2, is_normed)
    with torch.no_grad():
        mix.weights.copy_(torch.tensor([0.5, -1.0, 2.0]))
        mix.gain.fill_(1.7)
    # Two pooled vectors of three layers of width 4.
    layers = torch.randn(5, 2, 3, 4)
    exponentials = torch.tensor([0.5, -1.0, 2.0]).exp()
    expected = torch.zeros(5, 2, 4)
    for number in range(3):
        layer = layers[:, :, number]
        if is_normed:
            layer = layer - layer.mean(-1, keepdim=True)
            layer = layer / (layer.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        expected += exponentials[number] / exponentials.sum() * layer
    torch.testing.assert_close(mix(layers.flatten(1)), 1.7 * expected.flatten(1))
    # Untrained weights give every layer the same part.
    fresh = LayerMix("learned", 3, 2)
    torch.testing.assert_close(fresh(layers.flatten(1)), layers.mean(2).flatten(1))


def test_the_task_reads_word_vectors_beside_the_features() -> None:
    config = HeadConfig.parse({**HEAD, "word_vectors": {"width": 6}})
    head = config.build(TaskHeadContext(toy("elmo"), 3, vocab_size=VOCABULARY))
    init_head(head, None, 0)
    shaken(head, 0.3)
    features, token_ids = torch.randn(7, 3 * 32), torch.randint(0, VOCABULARY, (7,))
    lengths = [4, 3]
    reference = nn.LSTM(32 + 6, 16, bidirectional=True, batch_first=True)
    reference.load_state_dict(head.trunk.lstm.state_dict())
    words = torch.cat((head.mix(features), head.word_vectors.table.weight[token_ids]), 1)
    hidden = torch.cat([reference(part)[0] for part in words.split(lengths)])
    expected = head.classifier(hidden)
    actual = head.project(features, lengths, token_ids=token_ids)
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


def test_word_vectors_are_trained_and_the_encoder_is_not(pretrained, tmp_path: Path) -> None:
    model = pretrained("elmo")
    head = {**HEAD, "word_vectors": {"width": 8}, "mix_norm": True, "mix_l2": 0.01}
    result = feature_based(model, head, epochs=2, output=tmp_path / "tagger")
    after = result.model.task_model
    for name, parameter in model.model.encoder.named_parameters():
        assert torch.equal(parameter.cpu(), dict(after.encoder.named_parameters())[name].cpu())
    used = {i for s in result.run.encoded_tasks[0].sequences for i in s.token_ids}
    fresh = feature_based(model, head, epochs=0).model.task_model.head.word_vectors.table.weight
    moved = (after.head.word_vectors.table.weight - fresh).abs().sum(1).nonzero().flatten()
    assert 0 < len(moved) <= len(used)
    assert set(moved.tolist()) <= used
    again = load_fine_tuned_model(tmp_path / "tagger")
    assert again.predict(tagged()) == result.model.predict(tagged())


def test_the_squares_of_the_mixing_weights_are_a_penalty(pretrained) -> None:
    losses, weights = {}, {}
    for penalty in (0.0, 100.0):
        head = {**HEAD, "mix_l2": penalty}
        result = feature_based(pretrained("elmo"), head, epochs=2)
        losses[penalty] = result.run.epoch_reports[0].loss
        weights[penalty] = float(result.model.task_model.head.mix.weights.detach().abs().max())
    assert losses[100.0] > losses[0.0]
    assert weights[100.0] < weights[0.0]


def test_word_vectors_start_from_a_model_folder(pretrained, tmp_path: Path) -> None:
    model, source = pretrained("elmo"), pretrained("bert")
    save_model(tmp_path / "source", source.model, source.tokenizer, {})
    vectors = {"width": 32, "source": str(tmp_path / "source")}
    result = feature_based(model, {**HEAD, "word_vectors": vectors}, epochs=0)
    table = result.model.task_model.head.word_vectors.table.weight
    for token in ("bird", "old", "[SEP]"):
        expected = source.model.embedding_table[source.tokenizer.token_to_id(token)]
        torch.testing.assert_close(table[model.tokenizer.token_to_id(token)].cpu(), expected.cpu())
    with pytest.raises(UserError, match=r"a width of 32: set head\.word_vectors\.width to it"):
        feature_based(model, {**HEAD, "word_vectors": {**vectors, "width": 8}}, epochs=0)


@pytest.mark.parametrize(
    ("head", "settings", "message"),
    [
        ({**HEAD, "word_vectors": {}}, {"adaptation": "full"}, "set adaptation=frozen"),
        ({**HEAD, "mix": "sum", "mix_l2": 0.1}, {}, "learns no weights"),
        ({"kind": "bilstm", "mix_norm": True}, {}, "concat adds no layers"),
    ],
)
def test_settings_that_do_not_fit_are_refused(pretrained, head, settings, message) -> None:
    with pytest.raises(UserError, match=message):
        finetune(
            pretrained("elmo"), TASK, train=tagged(), dev=tagged(), head=head,
            **{"adaptation": "frozen", **settings},
        )  # fmt: skip
