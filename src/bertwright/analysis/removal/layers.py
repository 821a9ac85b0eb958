"""Which layers do what others do already: how alike they are, and what is lost without each
(Kovaleva et al. 2019, section 4.5; Kornblith et al. 2019)."""

from contextlib import AbstractContextManager
from typing import Any, Literal

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.conclusions import Conclusion
from bertwright.analysis.findings import Baseline, Finding, Found, Stored, span_of
from bertwright.analysis.questions import lacks_questions, questions
from bertwright.analysis.subject import Subject
from bertwright.analysis.word_states import SITES, word_states
from bertwright.significance import benjamini_hochberg, of_difference, sign_flips

PARTS = ("attention", "feed_forward")


TOLERATED = 0.01
"""Share of the loss that a layer may cost, at the upper end of its interval, and not be missed."""


class LayerRedundancy(Analysis):
    """How alike the states of each two layers are (CKA), and the loss in answers without a layer,
    without its attention, and without its feed-forward part, less that with all. Nothing is learned
    again."""

    kind: Literal["layer-redundancy"] = "layer-redundancy"
    number = "B44"
    group = "dynamics"
    question = "Which layers could go?"
    source = "Kovaleva et al. 2019; Kornblith et al. 2019"
    sites = (*SITES, "blocks.*.input", *(f"blocks.*.{part}.output" for part in PARTS))

    def lacks(self, case: Case) -> str | None:
        return super().lacks(case) or lacks_questions(case.subject)

    def run(self, case: Case) -> Found:
        subject, asking = case.subject, questions(case)
        whole, own = asking.asked(), word_states(case)
        alike = np.array([[likeness(a, b) for b in own.states] for a in own.states])
        findings = [
            Finding("likeness to the layer before", float(alike[layer, layer + 1]), layer)
            for layer in range(subject.num_layers)
        ]
        losses: dict[str, NDArray[np.float64]] = {}
        for name in ("layer", *PARTS):
            losses[name] = np.zeros((subject.num_layers, len(case.texts)))
            for layer in range(subject.num_layers):
                with without(subject, layer, name):
                    losses[name][layer] = asking.asked().loss
            chances = [sign_flips(of - whole.loss, seed=case.seed) for of in losses[name]]
            for layer, adjusted in enumerate(benjamini_hochberg(chances)):
                lead = of_difference(
                    (losses[name][layer], whole.total), (whole.loss, whole.total), seed=case.seed
                )
                findings.append(
                    Finding(
                        f"loss without {name.replace('_', '-')}, less that of all",
                        lead.value,
                        layer,
                        None,
                        span_of(lead),
                        lead.num_units,
                        Baseline("loss of all", whole.mean),
                        chances[layer],
                        float(adjusted),
                        len(chances),
                    )
                )
        return Found(findings, {"likeness": alike, **losses, "whole": whole.loss})

    def conclusions(self, stored: Stored) -> list[Conclusion]:
        without_layer = [f for f in stored.findings if f["metric"].startswith("loss without layer")]
        harmless = sum(
            f["interval"][1] < TOLERATED * f["baseline"]["value"]
            for f in without_layer
            if "interval" in f
        )
        alike = stored.arrays["likeness"]
        near, far = np.diag(alike, 1), alike[np.triu_indices(len(alike), 2)]
        return [
            Conclusion(
                f"there is a layer that can go for less than {TOLERATED:.0%} of the loss",
                "in BERT, for some tasks that it is fine-tuned for",
                harmless,
                None,
                0,
                "none",
                num_units=stored.num_texts,
            ),
            Conclusion(
                "layers beside each other are more alike than others",
                "in convolutional networks and in translation",
                float(near.mean()),
                None,
                float(far.mean()) if far.size else float("nan"),
                "layers farther apart",
                num_units=stored.num_texts,
            ),
        ]

    def draw(self, stored: Stored, figure: Figure) -> None:
        likenesses, lost = figure.subplots(1, 2)
        picture = likenesses.imshow(stored.arrays["likeness"], vmin=0, vmax=1, origin="lower")
        figure.colorbar(picture, ax=likenesses, label="CKA")
        likenesses.set_xlabel("layer, 0 before the blocks")
        for name in ("layer", *PARTS):
            metric = f"loss without {name.replace('_', '-')}, less that of all"
            own = [found for found in stored.findings if found["metric"] == metric]
            lost.plot(
                [f["layer_from_1"] for f in own],
                [f["value"] for f in own],
                marker="o",
                label=name.replace("_", "-"),
            )
        lost.axhline(0, linestyle=":")
        lost.set_xlabel("layer")
        lost.set_ylabel("nats lost without it")
        lost.legend()


def without(subject: Subject, layer: int, part: str) -> AbstractContextManager[None]:
    """A ``layer`` gives on what it is given; its attention or feed-forward part gives nothing."""
    if part == "layer":
        return subject.encoder.pass_by(layer)
    nothing = torch.zeros(1, device=subject.text_model.device)
    return subject.encoder.gate({f"blocks.{layer}.{part}.output": nothing})


def likeness(first: NDArray[Any], second: NDArray[Any]) -> float:
    """Linear CKA of states (N, D), (N, E) of the same words: 1 where one is the other turned and
    scaled, 0 in the mean where they have nothing to do with each other, however few words there
    are; nan where all words are alike, or fewer than four (Kornblith et al. 2019, with the unbiased
    estimator of Song et al. 2012, equation 5, in the place of each of its terms)."""
    a, b = (np.asarray(x, np.float64) - x.mean(0) for x in (first, second))
    if len(a) < 4:
        return float("nan")
    alone = _dependence(a, a), _dependence(b, b)
    return float(_dependence(a, b) / np.sqrt(alone[0] * alone[1])) if min(alone) > 0 else np.nan


def _dependence(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """How much centred states of the same words have to do with each other, over all pairs of
    different words."""
    number, (of_a, of_b) = len(a), (np.einsum("nd,nd->n", x, x) for x in (a, b))
    pairs = np.linalg.norm(a.T @ b) ** 2 - of_a @ of_b * number / (number - 2)
    return float(pairs + of_a.sum() * of_b.sum() / ((number - 1) * (number - 2)))
