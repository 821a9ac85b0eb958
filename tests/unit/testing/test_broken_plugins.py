"""Every check fails, with a sentence, for a plugin that breaks a law."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from bertwright.analysis.attention.attention_mass import AttentionMass
from bertwright.analysis.core.result import AnalysisResult
from bertwright.batches.targets import Targets
from bertwright.interop.huggingface.families.bert import Bert
from bertwright.modules.feed_forward import PlainFeedForward
from bertwright.objectives.masked import MaskedLM
from bertwright.optimisers.adam import AdamOptimiser
from bertwright.tasks.heads.head import TaskHead
from bertwright.testing import (
    check_analysis,
    check_family,
    check_objective,
    check_recipe,
    check_task,
)
from documented_plugins import LABELLED_LINES, LabelledLines, ShuffledTokens
from small_tasks import classes

make_targets, compute_loss = ShuffledTokens.make_targets, ShuffledTokens.compute_loss


def targets_changed(change: Callable[[Targets], Targets]) -> Callable[..., Any]:
    def changed(self: ShuffledTokens, batch: Any, context: Any) -> Any:
        batch, targets = make_targets(self, batch, context)
        return batch, change(targets)

    return changed


def loss_changed(change: Callable[[Any], Any]) -> Callable[..., Any]:
    def changed(self: ShuffledTokens, targets: Any, output: Any, head: Any) -> Any:
        return change(compute_loss(self, targets, output, head))

    return changed


def modify_input(self: ShuffledTokens, batch: Any, context: Any) -> Any:
    changed, targets = make_targets(self, batch, context)
    batch.token_ids[:] = changed.token_ids
    return changed, targets


def global_randomness(self: ShuffledTokens, batch: Any, context: Any) -> Any:
    batch, targets = make_targets(self, batch, context)
    weights = np.random.default_rng().random(len(targets.weights)).astype(np.float32)
    return batch, replace(targets, weights=weights)


def whole_batch(self: ShuffledTokens, batch: Any, context: Any) -> Any:
    batch, targets = make_targets(self, batch, context)
    return replace(batch, token_ids=(batch.token_ids + batch.token_ids.sum()) % 40), targets


def varying_number(targets: Targets) -> Targets:
    kept = targets.labels * targets.positions % 3 > 0
    return Targets(targets.positions[kept], targets.labels[kept], targets.weights[kept])


def mean_over_padding(self: ShuffledTokens, targets: Any, output: Any, head: nn.Linear) -> Tensor:
    states = output.hidden_states.mean(1)
    return head(states[targets.positions // output.token_ids.shape[1]]).float()


def without_head(self: ShuffledTokens, targets: Any, output: Any, head: nn.Module) -> Tensor:
    return output.states_at(targets.positions)[:, :2].float()


@pytest.mark.parametrize(
    ("method", "broken", "message"),
    [
        ("make_targets", modify_input, "changes token_ids of its input"),
        ("make_targets", global_randomness, "other than from its rng"),
        ("make_targets", whole_batch, "depend on its batch"),
        ("make_targets", targets_changed(varying_number), "number of targets changes"),
        (
            "make_targets",
            targets_changed(lambda t: replace(t, labels=2 * t.labels)),
            "it has 2 classes",
        ),
        (
            "make_targets",
            targets_changed(lambda t: replace(t, weights=0 * t.weights)),
            "there is no target in 8 sequences",
        ),
        ("compute_loss", loss_changed(lambda x: replace(x, sum=x.sum / 0)), "one finite float32"),
        ("compute_loss", loss_changed(lambda x: replace(x, count=2 * x.count)), "targets weigh"),
        (
            "compute_loss",
            loss_changed(lambda x: replace(x, num_correct=x.num_correct + x.count)),
            "predictions are correct",
        ),
        (
            "compute_loss",
            loss_changed(lambda x: replace(x, sum=2 * x.sum.detach() - x.sum)),
            r"on one batch its loss goes from .* in 30 steps",
        ),
        ("logits", mean_over_padding, "its loss depends on padding"),
        ("logits", without_head, "the loss does not reach tested-tokens.weight of its head"),
    ],
)
def test_a_broken_objective_fails(
    method: str, broken: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ShuffledTokens, method, broken)
    with pytest.raises(AssertionError, match=f"objective tested-tokens: .*({message})"):
        check_objective("tested-tokens")


def test_an_unknown_objective_is_named() -> None:
    with pytest.raises(AssertionError, match="has no kind 'testd-tokens': did you mean"):
        check_objective("testd-tokens")


feed_forward, state_dict, masked_loss = (
    PlainFeedForward.forward,
    AdamOptimiser.state_dict,
    MaskedLM.compute_loss,
)


def centred(dimension: int) -> Callable[..., Tensor]:
    """Return a feed-forward that subtracts a mean over all positions, or over the batch."""

    def forward(self: PlainFeedForward, x: Tensor, *args: Any) -> Tensor:
        output = feed_forward(self, x, *args)
        return output - output.mean(dimension, keepdim=True)

    return forward


def forgetful(self: AdamOptimiser) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in state_dict(self).items() if name == "num_steps"}


def infinite(self: MaskedLM, *arguments: Any) -> Any:
    loss = masked_loss(self, *arguments)
    return replace(loss, sum=loss.sum * torch.inf)


@pytest.mark.parametrize(
    ("owner", "method", "broken", "message"),
    [
        (PlainFeedForward, "forward", centred(1), "a hidden state depends on padding"),
        (PlainFeedForward, "forward", centred(0), "depends on the other sequences of the batch"),
        (AdamOptimiser, "state_dict", forgetful, "resumed after its first step"),
        (MaskedLM, "compute_loss", infinite, "it does not train: NonFiniteError"),
    ],
)
def test_a_broken_recipe_fails(
    owner: type, method: str, broken: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, method, broken)
    with pytest.raises(AssertionError, match=f"recipe bert: .*{message}"):
        check_recipe("bert")


def test_a_random_initialisation_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "bertwright.modules.initialisation.fill_normal", lambda weight, *_: weight.normal_()
    )
    with pytest.raises(AssertionError, match="depends on more than the seed"):
        check_recipe("bert")


read, parse_lines, pool = (
    LabelledLines.read,
    LabelledLines.parse_lines,
    TaskHead.pool,
)


def drop_a_line(self: Any, path: Path, with_labels: bool = True) -> Any:
    return read(self, path, with_labels)[1:]


def drop_a_line_without_labels(self: Any, path: Path, with_labels: bool = True) -> Any:
    return read(self, path, with_labels)[0 if with_labels else 1 :]


def leave_the_label(self: Any, path: Path, with_labels: bool = True) -> Any:
    examples = read(self, path, with_labels)
    return examples if with_labels else [replace(e, text=f"old: {e.text}") for e in examples]


@pytest.mark.parametrize(
    ("method", "broken", "message"),
    [
        ("read", drop_a_line, r"reads 11 examples of dev\.txt, which has 12"),
        ("read", drop_a_line_without_labels, "with labels, and 11 without"),
        ("read", leave_the_label, "without labels, .* is read as"),
        ("matches", lambda *_: False, "predict reads .* differently"),
        ("parse_lines", lambda *a: parse_lines(*a)[1:], "12 examples, and 11 lines"),
    ],
)
def test_a_broken_reader_fails(
    method: str, broken: Any, message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(LabelledLines, method, broken)
    with pytest.raises(AssertionError, match=f"task tested-lines: .*{message}"):
        check_task(LABELLED_LINES, labelled_files(tmp_path), num_examples=12)


def pool_padding(self: TaskHead, states: Tensor, document_ids: Tensor | None) -> Tensor:
    return pool(self, states, None if document_ids is None else 0 * document_ids)


def test_a_head_that_reads_padding_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(TaskHead, "pool", pool_padding)
    head = {"kind": "plain", "pooling": "mean"}
    with pytest.raises(AssertionError, match="depends on padding or on other examples"):
        check_task(LABELLED_LINES, labelled_files(tmp_path), head=head)


def labelled_files(folder: Path) -> tuple[Path, Path]:
    files = folder / "train.txt", folder / "dev.txt"
    for file, part in zip(files, (classes()[:20], classes()[20:]), strict=True):
        lines = [f"{e.label}: {e.text}{' again' * (n % 4)}\n" for n, e in enumerate(part)]
        file.write_text("".join(lines))
    return files


run = AttentionMass.run


def result_changed(change: Callable[[AnalysisResult], AnalysisResult]) -> Callable[..., Any]:
    return lambda self, inputs: change(run(self, inputs))


def with_value(value: float) -> Callable[[AnalysisResult], AnalysisResult]:
    return lambda result: replace(
        result, findings=[replace(result.findings[0], value=value), *result.findings[1:]]
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (with_value(float("nan")), "has the value nan"),
        (with_value(0.123), "changes from run to run, or in its file"),
        (lambda result: replace(result, findings=[]), "has no findings"),
        (lambda result: replace(result, arrays={"more": np.ones(2)}), "other arrays"),
    ],
)
def test_a_broken_analysis_fails(
    change: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AttentionMass, "run", result_changed(change))
    with pytest.raises(AssertionError, match=f"analysis attention-mass.*{message}"):
        check_analysis("attention-mass")


def test_an_analysis_without_its_inputs_fails() -> None:
    with pytest.raises(AssertionError, match=r"does not apply to these inputs: .* trees"):
        check_analysis("relation-heads")


extend_config, import_tensors = Bert.extend_config, Bert.import_tensors


def other_epsilon(self: Bert, config: Any, recipe: Any) -> Any:
    return {**extend_config(self, config, recipe), "layer_norm_eps": 0.5}


def scaled_bias(self: Bert, tensors: Any, config: Any) -> Any:
    tensors = import_tensors(self, tensors, config)
    return {n: 2 * t if n.endswith("norm.bias") else t for n, t in tensors.items()}


@pytest.mark.parametrize(
    ("method", "broken", "message"),
    [
        ("extend_config", other_epsilon, "the stock class differs from the model"),
        ("import_tensors", scaled_bias, "norm.bias changes on export and import"),
    ],
)
def test_a_broken_family_fails(
    method: str, broken: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Bert, method, broken)
    with pytest.raises(AssertionError, match=f"family bert: .*{message}"):
        check_family("bert")


def test_an_unknown_family_is_named() -> None:
    with pytest.raises(AssertionError, match="no family 'brt': did you mean 'bert'"):
        check_family("brt")
