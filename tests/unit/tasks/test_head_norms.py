"""Norms before a head: the equations of IsoBN, statistics, and heads that cannot have one."""

from typing import Any

import numpy as np
import pytest
import torch

from bertwright.core.errors import UserError
from bertwright.tasks.fine_tuned_model import load_fine_tuned_model
from bertwright.tasks.finetuning.finetune import finetune
from bertwright.tasks.heads.head import TaskHeadContext, init_head
from bertwright.tasks.heads.kinds import LinearHeadConfig
from bertwright.tasks.heads.layers import IsotropicBatchNorm
from bertwright.tasks.outputs import OutputType
from bertwright.tasks.task import Task
from small_tasks import classes, pairs, similar

SETTINGS = {"epochs": 1, "compile": False, "batch_size": 8}


def batches() -> list[torch.Tensor]:
    """Return batches of correlated units, one of them far larger than the others."""
    mixed = torch.randn(3, 16, 6, generator=torch.Generator().manual_seed(0))
    mixed[..., 1] = mixed[..., 0] + 0.1 * mixed[..., 1]
    mixed[..., 5] *= 20
    return list(mixed + 3)


def test_isotropic_norm_follows_its_equations() -> None:
    """Algorithm 1 in NumPy: moving statistics, correlations, one scale for each unit."""
    norm, std, cov = IsotropicBatchNorm(6).train(), np.zeros(6), np.zeros((6, 6))
    for x in batches():
        output = norm(x)
        std += 0.05 * (x.numpy().std(0) - std)
        cov += 0.05 * (np.cov(x.numpy().T, bias=True) - cov)
        correlations = np.clip(cov / np.outer(std, std), -1, 1)
        theta = (std * (correlations**2).mean(1) + 1e-3) ** -0.5
        theta *= np.sqrt(cov.diagonal().sum() / (cov.diagonal() * theta**2).sum())
        np.testing.assert_allclose(output.numpy(), x.numpy() * theta, rtol=1e-4)


def test_isotropic_norm_keeps_the_variance_and_evens_it_out() -> None:
    norm, x = IsotropicBatchNorm(6).train(), torch.cat(batches())
    for _ in range(50):
        norm(x)
    y = norm.eval()(x)
    assert float(y.var(0).sum()) == pytest.approx(float(x.var(0).sum()), rel=1e-3)
    assert float(y.std(0).max() / y.std(0).min()) < float(x.std(0).max() / x.std(0).min()) / 2
    scale = y[0] / x[0]
    assert scale[0] < scale[2]  # correlated with another unit
    assert scale[5] < scale[2]  # larger than others


def test_statistics_are_of_training_and_gradients_pass(pretrained) -> None:
    norm, x = IsotropicBatchNorm(6).train(), batches()[0].requires_grad_()
    assert torch.equal(IsotropicBatchNorm(6).eval()(x), x)
    norm(x[:1])  # a single row has no variance
    assert not norm.running_cov.any()
    (gradient,) = torch.autograd.grad(norm(x).sum(), x)
    assert torch.allclose(gradient, norm.scale().expand_as(x))
    before = norm.running_cov.clone()
    norm.eval()(x)
    assert torch.equal(norm.running_cov, before)
    head = LinearHeadConfig(norm="isotropic").build(TaskHeadContext(pretrained().model.recipe, 2))
    head.norm.running_cov.fill_(1.0)
    init_head(head, None, seed=0)
    assert not head.norm.running_cov.any()


@pytest.mark.parametrize("norm", ["layer", "batch", "isotropic"])
@pytest.mark.parametrize("adaptation", ["full", "frozen"])
def test_loaded_model_predicts_the_same(pretrained, tmp_path, norm: str, adaptation: str) -> None:
    task, examples = Task("colours", OutputType.parse("class")), classes()
    result = finetune(
        pretrained(), task, train=examples, dev=examples, output=tmp_path / "out",
        head={"norm": norm}, adaptation=adaptation, **SETTINGS,
    )  # fmt: skip
    assert not result.run.has_lbfgs_solver
    assert not isinstance(result.model.task_model.head.norm, torch.nn.Identity)
    assert load_fine_tuned_model(tmp_path / "out").predict(examples) == result.model.predict(
        examples
    )


@pytest.mark.parametrize(
    ("output_type", "examples", "head", "message"),
    [
        (
            {"kind": "similarity", "max_label": 5.0},
            similar(),
            {},
            "of output type similarity has no",
        ),
        ("class", pairs(), {"kind": "san"}, "the san head of output type class has no norm"),
    ],
)
def test_heads_without_a_norm_are_refused(
    pretrained, output_type: Any, examples: Any, head: Any, message: str
) -> None:
    task = Task("task", OutputType.parse(output_type))
    with pytest.raises(UserError, match=message):
        finetune(
            pretrained(),
            task,
            train=examples,
            dev=examples,
            head={**head, "norm": "layer"},
            **SETTINGS,
        )
