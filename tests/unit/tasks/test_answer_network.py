"""The stochastic answer network against its equations, and its settings."""

import pytest
import torch

from bertwright.core.errors import UserError
from bertwright.modules.dropout_rng import DropoutRng
from bertwright.tasks.adapters import FullFineTuningConfig
from bertwright.tasks.catalogue import table_task
from bertwright.tasks.data.task_data import TaskData
from bertwright.tasks.fine_tuned_model import load_fine_tuned_model
from bertwright.tasks.finetuning.config import FineTuningConfig
from bertwright.tasks.finetuning.finetune import finetune, finetune_tasks
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.heads.answer_network import AnswerNetwork, AnswerNetworkHeadConfig
from bertwright.tasks.task_model import HeadSpec, TaskModel
from small_tasks import classes, pairs
from toy_recipes import VOCABULARY, shaken, toy

WIDTH, CLASSES = 6, 3


def network(**settings) -> AnswerNetwork:
    config = AnswerNetworkHeadConfig(**settings)
    return shaken(AnswerNetwork(config, WIDTH, CLASSES, 0.0).double(), 0.3).requires_grad_(False)


def states(*shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(*shape, WIDTH, generator=generator, dtype=torch.float64)


def step_probabilities(net: AnswerNetwork, first: torch.Tensor, second: torch.Tensor):
    """Return the prediction of every step for texts (P, D) and (H, D), from the equations."""
    alpha = torch.softmax(second @ net.start.weight[0], 0)
    state = sum(a * token for a, token in zip(alpha, second, strict=True))
    gates = (net.cell.weight_ih.chunk(3), net.cell.weight_hh.chunk(3))
    biases = (net.cell.bias_ih.chunk(3), net.cell.bias_hh.chunk(3))
    probabilities = []
    for _ in range(net.num_steps):
        beta = torch.softmax(torch.stack([m @ net.attention.weight @ state for m in first]), 0)
        x = sum(b * token for b, token in zip(beta, first, strict=True))
        features = torch.cat((state, x, (state - x).abs(), state * x))
        logits = net.classifier.weight @ features + net.classifier.bias
        probabilities.append(torch.softmax(logits, 0))
        (ir, iz, inew), (hr, hz, hnew) = (
            [w @ v + b for w, b in zip(ws, bs, strict=True)]
            for ws, bs, v in zip(gates, biases, (x, state), strict=True)
        )
        reset, update = torch.sigmoid(ir + hr), torch.sigmoid(iz + hz)
        state = (1 - update) * torch.tanh(inew + reset * hnew) + update * state
    return torch.stack(probabilities)


@pytest.mark.parametrize("num_steps", [1, 4])
def test_it_follows_the_equations(num_steps: int) -> None:
    net, hidden = network(steps=num_steps), states(2, 7)
    segment = torch.tensor([[0, 0, 0, 1, 1, 1, -1], [0, 0, 1, 1, 1, 1, 1]])
    actual = net(hidden, segment == 0, segment == 1).exp()
    for row in range(2):
        first, second = (hidden[row][segment[row] == text] for text in (0, 1))
        expected = step_probabilities(net, first, second).mean(0)
        torch.testing.assert_close(actual[row].double(), expected, atol=1e-6, rtol=1e-5)


def test_predictions_of_steps_are_dropped_in_training() -> None:
    net, hidden = network(step_dropout=0.9), states(1, 5).expand(400, -1, -1)
    segment = torch.tensor([[0, 0, 1, 1, 1]]).expand(400, -1)
    outputs = net(hidden, segment == 0, segment == 1, DropoutRng.for_step(1, 2)).exp()
    steps = step_probabilities(net, hidden[0, :2], hidden[0, 2:]).float()
    # Some sequence keeps one step only, and every output is a mean of kept steps.
    subsets = torch.stack(
        [steps[[n for n in range(5) if m >> n & 1]].mean(0) for m in range(1, 32)]
    )
    distance = (outputs[:, None] - subsets).abs().amax(-1)
    assert distance.amin(1).max() < 1e-5
    assert (distance.argmin(1) + 1).bincount(minlength=32)[[1, 2, 4, 8, 16]].sum() > 200
    half = DropoutRng.for_step(1, 2, first_sequence=200)
    again = net(hidden[200:], segment[200:] == 0, segment[200:] == 1, half).exp()
    torch.testing.assert_close(again, outputs[200:])


def test_padding_changes_nothing() -> None:
    model = TaskModel(
        toy("bert"), VOCABULARY, HeadSpec(AnswerNetworkHeadConfig(), 2), FullFineTuningConfig()
    )
    shaken(model, 0.1)
    hidden = torch.randn(2, 6, 32, generator=torch.Generator().manual_seed(1))
    segment = torch.tensor([[0, 0, 0, 1, 1, 1]]).expand(2, -1)
    plain = model.head(hidden[:, :5], torch.zeros(2, 5), segment_ids=segment[:, :5])
    document_ids = torch.tensor([[0, 0, 0, 0, 0, -1]]).expand(2, -1)
    torch.testing.assert_close(model.head(hidden, document_ids, segment_ids=segment), plain)


def test_settings_of_mt_dnn(pretrained, tmp_path) -> None:
    config = FineTuningConfig.from_settings({"settings": "mt-dnn", "epochs": 2})
    assert (config.epochs, config.batch_size, config.max_grad_norm) == (2, 32, 1.0)
    assert config.pair_head == AnswerNetworkHeadConfig(steps=5, step_dropout=0.1)
    tasks = [
        TaskData(table_task(name, Columns()), train=examples, dev=examples)
        for name, examples in (("pairs", pairs()), ("single", classes()))
    ]
    output = tmp_path / "models"
    finetune_tasks(pretrained(), tasks, output=output, settings="mt-dnn", epochs=1, compile=False)
    kinds = []
    for name in ("pairs", "single"):
        model = load_fine_tuned_model(output / name)
        kinds.append(model.task_model.head_config.kind_name())
        assert len(model.predict(classes()[:1] if name == "single" else pairs()[:1])) == 1
    assert kinds == ["san", "pooler"]
    with pytest.raises(UserError, match="no published settings 'mtdnn': did you mean 'mt-dnn'"):
        FineTuningConfig.from_settings({"settings": "mtdnn"})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"head": "san"}, "compares two texts, and task ages has one"),
        ({"head": {"kind": "plain", "pooling": "pair"}}, "needs pair, and no other head does"),
    ],
)
def test_unsuitable_settings_are_an_error(pretrained, settings, message: str) -> None:
    with pytest.raises(UserError, match=message):
        finetune(pretrained(), table_task("ages", Columns()), train=classes(), **settings)


def test_unsuitable_models_are_an_error(pretrained) -> None:
    task = table_task("pairs", Columns())
    with pytest.raises(UserError, match="frozen encoder's features are a summary"):
        finetune(pretrained(), task, train=pairs(), head="san", adaptation="frozen")
    with pytest.raises(UserError, match="this encoder has none"):
        finetune(pretrained("roberta"), task, train=pairs(), head="san")
