"""Pre-trained distillation: a small pre-trained encoder, distilled on unlabelled texts."""

import torch
import torch.nn.functional as F

from bertwright.compression.distillation.losses.outputs import soft_kl_divergence
from bertwright.models.model import Model
from bertwright.models.saving import load_model
from bertwright.models.text_model import TextModel
from experiments.analyses.expecting import expect_equal
from experiments.compressions.check import CheckResults, CompressionCheck, MeasuredValue
from experiments.compressions.toy_models import ToyModels

TASK = "sentiment"
SMALL = ("encoder.width=32", "encoder.mixer.head_width=8", "encoder.depth.layers=2")


def run(toy: ToyModels) -> CheckResults:
    """Cross two factors: random or pre-trained encoder, few labels or the teacher's outputs."""
    yield from _certain_teacher_is_label()
    teacher, data = toy.fine_tuned(TASK), toy.task_data(TASK, toy.size.few_examples)
    unlabelled = toy.unlabelled(TASK)
    distilled: dict[str, list[float]] = {"random": [], "pre-trained": []}
    baseline: dict[str, list[float]] = {"random": [], "pre-trained": []}
    for seed in toy.seeds:
        recipe, tokenizer = toy.recipe(*SMALL, seed=seed), toy.data.tokenizer
        pretrained, _ = load_model(toy.pretrain(f"c7-{seed}", recipe).folder)
        random = Model.build(recipe, tokenizer.vocab_size)
        for name, model in (("random", random), ("pre-trained", pretrained)):
            result = toy.compress(
                teacher,
                "pre-trained-distillation",
                [seed],
                task_data=data,
                student=TextModel(model, tokenizer, "float32"),
                unlabelled=unlabelled,
                with_baseline=True,
            )
            distilled[name] += result.scores
            baseline[name] += result.baseline_scores
    for name, scores in distilled.items():
        yield MeasuredValue(f"accuracy, {name}, distilled", scores, "labels only", baseline[name])
    for name, arm_scores in (("labels only", baseline), ("distilled", distilled)):
        pretrained_scores, random_scores = arm_scores["pre-trained"], arm_scores["random"]
        yield MeasuredValue(
            f"accuracy, pre-trained, {name}", pretrained_scores, "random", random_scores
        )
    distilled_mean, baseline_mean = (
        [(a + b) / 2 for a, b in zip(*arm_scores.values(), strict=True)]
        for arm_scores in (distilled, baseline)
    )
    yield MeasuredValue(
        "accuracy, distilled, mean",
        distilled_mean,
        "labels only",
        baseline_mean,
        expected_side="above",
    )
    gains = [
        [a - b for a, b in zip(distilled[name], baseline[name], strict=True)]
        for name in ("pre-trained", "random")
    ]
    yield MeasuredValue("gain by the teacher, pre-trained", gains[0], "random", gains[1])


def _certain_teacher_is_label() -> CheckResults:
    """Check that a teacher that is certain of a class has the loss of a label."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(6, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([0, 1, 2, 2, 1, 0])
    certain = 1e3 * F.one_hot(labels, 3).double()
    divergence = soft_kl_divergence(logits, certain, 1.0)
    cross_entropy = F.cross_entropy(logits, labels, reduction="sum")
    yield expect_equal(
        "a certain teacher against labels, loss", divergence.item(), cross_entropy.item(), 1e-12
    )
    gradient, expected = (
        torch.autograd.grad(loss, logits)[0] for loss in (divergence, cross_entropy)
    )
    yield expect_equal(
        "a certain teacher against labels, gradient", gradient.numpy(), expected, 1e-12
    )


CHECK = CompressionCheck(
    "C7",
    "pre-trained",
    "Do pre-training and a teacher's outputs for many texts add up in a small encoder?",
    "Turc et al. 2019",
    run,
)
