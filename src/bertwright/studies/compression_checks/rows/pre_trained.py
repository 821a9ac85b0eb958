"""A small encoder that has read much and answers little, taught on texts without labels."""

import torch
import torch.nn.functional as F

from bertwright.analysis.planted.expecting import equal
from bertwright.compression.signals.outputs import divergence
from bertwright.model.folder import load_model
from bertwright.model.model import Model
from bertwright.model.text_model import TextModel
from bertwright.studies.compression_checks.ground import Ground
from bertwright.studies.compression_checks.row import Came, Measured, Row

TASK = "sentiment"
SMALL = ("encoder.width=32", "encoder.mixer.head_width=8", "encoder.depth.layers=2")


def run(ground: Ground) -> Came:
    """Two by two: an encoder that is drawn or has read, with the labels of a few texts or with the
    teacher's answers to ten times as many."""
    yield from _sure_of_one()
    teacher, given = ground.tuned(TASK), ground.given(TASK, ground.size.few)
    transfer = ground.unlabelled(TASK)
    taught: dict[str, list[float]] = {"drawn": [], "read": []}
    alone: dict[str, list[float]] = {"drawn": [], "read": []}
    for seed in ground.seeds:
        recipe, tokenizer = ground.recipe(*SMALL, seed=seed), ground.data.tokenizer
        read, _ = load_model(ground.learned(f"c7-{seed}", recipe).path)
        for name, model in (("drawn", Model.build(recipe, tokenizer.size)), ("read", read)):
            found = ground.compressed(
                teacher,
                "pre-trained-distillation",
                [seed],
                given=given,
                student=TextModel(model, tokenizer, "float32"),
                transfer=transfer,
                alone=True,
            )
            taught[name] += found.scores
            alone[name] += found.alone
    for name, scores in taught.items():
        yield Measured(f"accuracy, {name}, taught", scores, "labels alone", alone[name])
    for told, scores in (("labels alone", alone), ("taught", taught)):
        yield Measured(f"accuracy, read, {told}", scores["read"], "drawn", scores["drawn"])
    both = [(a + b) / 2 for a, b in zip(*taught.values(), strict=True)]
    neither = [(a + b) / 2 for a, b in zip(*alone.values(), strict=True)]
    yield Measured("accuracy, taught, in the mean", both, "labels alone", neither, wanted="above")
    gains = [[a - b for a, b in zip(taught[n], alone[n], strict=True)] for n in ("read", "drawn")]
    yield Measured("gain by the teacher, read", gains[0], "drawn", gains[1])


def _sure_of_one() -> Came:
    """A teacher that is sure of one answer is a label."""
    draw = torch.Generator().manual_seed(0)
    logits = torch.randn(6, 3, generator=draw, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([0, 1, 2, 2, 1, 0])
    sure = 1e3 * F.one_hot(labels, 3).double()
    losses = divergence(logits, sure, 1.0), F.cross_entropy(logits, labels, reduction="sum")
    slopes = [torch.autograd.grad(loss, logits)[0] for loss in losses]
    yield equal("a sure teacher against labels, loss", losses[0].item(), losses[1].item(), 1e-12)
    yield equal("a sure teacher against labels, slope", slopes[0].numpy(), slopes[1], 1e-12)


ROW = Row(
    "C7",
    "pre-trained",
    "Do reading and a teacher's answers to many texts add up in a small encoder?",
    "Turc et al. 2019",
    run,
)
