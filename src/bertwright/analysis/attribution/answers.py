"""Which pieces an answer comes from: gradients, gradients times inputs, integrated gradients
(Sundararajan et al. 2017)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.attribution.entering import ENTRY, entered, entering
from bertwright.analysis.conclusions import Conclusion, concluded
from bertwright.analysis.findings import Finding, Found, Stored
from bertwright.analysis.questions import lacks_hidden_places
from bertwright.analysis.rows import row_of
from bertwright.analysis.subject import Subject
from bertwright.analysis.texts import ReadText, is_told_apart, lacks_longer
from bertwright.encoder.stream import Coordinates
from bertwright.randomness import key, uniform
from bertwright.significance import of_ratio

Method = Literal["gradient", "gradient times input", "integrated gradients"]

AT_ONCE = 32
"""Points of a path that are read together."""

TAKEN = 0.2
"""The share of pieces that is hidden to see whether they mattered."""


class AnswerAttribution(Analysis):
    """In every text one piece is hidden and named; the score of the right one is attributed to the
    others. A method is good if the score falls more when the pieces that it names are hidden than
    when others are, drawn at random. ``points`` of the straight path from a row of masks make the
    integral, whose sum is the difference of the scores at its ends: how far it is not is told."""

    kind: Literal["answer-attribution"] = "answer-attribution"
    points: int = Field(default=64, ge=2)
    number = "B20"
    group = "attribution"
    question = "Which pieces does an answer come from?"
    source = "Sundararajan et al. 2017"
    sites = (ENTRY,)

    def lacks(self, case: Case) -> str | None:
        if lacking := lacks_hidden_places(case.subject):
            return lacking
        return lacks_longer(case.texts) or super().lacks(case)

    def run(self, case: Case) -> Found:
        asked = [
            Answer.of(case.subject, text, case.seed, number)
            for number, text in enumerate(case.texts)
            if is_told_apart(text)
        ]
        falls: dict[str, list[float]] = {}
        errors: list[float] = []
        held: dict[str, NDArray[np.float64]] = {}
        for number, own in enumerate(asked):
            found, error = own.attributed(self.points)
            errors.append(error)
            for name, values in found.items():
                falls.setdefault(name, []).append(own.fall(values))
            drawn = uniform(key(case.seed, "at random"), number, np.arange(len(own.text)))
            falls.setdefault("at random", []).append(own.fall(drawn))
            if number == 0:
                held = {f"first, {name}": values for name, values in found.items()}
        findings = [
            Finding("error of the sum, relative, largest", max(errors), num_units=len(errors))
        ]
        random = np.array(falls["at random"])
        for name, own in falls.items():
            findings.append(Finding.over_texts(f"fall, {name}", of_ratio(own, seed=case.seed)))
            if name != "at random":
                lead = of_ratio(np.array(own) - random, seed=case.seed)
                findings.append(Finding.over_texts(f"lead of {name}", lead))
        return Found(findings, {**held, "falls": np.array(list(falls.values()))})

    def conclusions(self, stored: Stored) -> list[Conclusion]:
        error = stored.of_all("error of the sum, relative, largest")
        return [
            concluded(
                "integrated gradients add up to the difference of the scores",
                "exact where the integral is (completeness)",
                error,
                0.05,
                "a twentieth",
                "below",
            ),
            *(
                concluded(
                    f"hiding what {method} names lowers the score more than hiding others",
                    "the sense of an attribution",
                    stored.of_all(f"lead of {method}"),
                    0.0,
                    "at random",
                )
                for method in ("gradient", "gradient times input", "integrated gradients")
            ),
        ]

    def draw(self, stored: Stored, figure: Figure) -> None:
        axes = figure.subplots()
        falls = [f for f in stored.findings if f["metric"].startswith("fall, ")]
        axes.bar([f["metric"].removeprefix("fall, ") for f in falls], [f["value"] for f in falls])
        axes.set_ylabel("fall of the score, nats, with a fifth of the pieces hidden")


@dataclass(frozen=True)
class Answer:
    """A text with one hidden place, and the piece that stood there."""

    subject: Subject
    text: ReadText
    pieces: Tensor
    coordinates: Coordinates
    place: int
    target: int

    @staticmethod
    def of(subject: Subject, text: ReadText, seed: int, number: int) -> "Answer":
        """A place of the text, drawn by the seed."""
        inside = np.flatnonzero(text.word >= 0)
        place = int(inside[uniform(key(seed, "asked"), number, inside).argmin()])
        pieces, coordinates = row_of(subject, text)
        target = int(pieces[0, place])
        pieces[0, place] = subject.tokenizer.specials.mask
        return Answer(subject, text, pieces, coordinates, place, target)

    def entered(self, pieces: Tensor) -> Tensor:
        """What the blocks read of other pieces (B, T) in these places: (B, T, D)."""
        return entered(self.subject, pieces, self.coordinates)

    def scores(self, vectors: Tensor) -> Tensor:
        """The log-probability of the right piece, of each row of vectors (B, T, D)."""
        model = self.subject.text_model.model
        with entering(self.subject, vectors):
            states = model(self.pieces.expand(len(vectors), -1), self.coordinates)
        return model.logits(states[:, self.place]).log_softmax(-1)[:, self.target]

    def attributed(self, points: int) -> tuple[Mapping[Method, NDArray[np.float64]], float]:
        """What each place gives to the score, (T,) by method, and by how much the sum of the
        integrated ones misses, relative to what it should be."""
        masks = torch.full_like(self.pieces, self.subject.tokenizer.specials.mask)
        at, start = self.entered(self.pieces), self.entered(masks)
        own = self._gradients(at)
        steps = (torch.arange(points, device=at.device) + 0.5) / points
        mean = torch.zeros_like(at)
        for some in steps.to(at).split(AT_ONCE):
            mean += self._gradients(start + some[:, None, None] * (at - start)).sum(0) / points
        integrated = (mean * (at - start)).sum(-1)[0]
        with torch.no_grad():
            wanted = float(self.scores(at) - self.scores(start))
        error = abs(float(integrated.sum()) - wanted) / max(abs(wanted), 1e-6)
        found: dict[Method, Tensor] = {
            "gradient": own.norm(dim=-1)[0],
            "gradient times input": (own * at).sum(-1)[0],
            "integrated gradients": integrated,
        }
        return {name: value.double().cpu().numpy() for name, value in found.items()}, error

    @torch.no_grad()
    def fall(self, importance: NDArray[np.float64]) -> float:
        """By how much the score falls with the most important places hidden."""
        others = np.flatnonzero(self.text.word >= 0)
        others = others[others != self.place]
        number = max(1, round(TAKEN * len(others)))
        taken = others[np.argsort(-importance[others], kind="stable")[:number]]
        hidden = self.pieces.clone()
        hidden[0, taken.tolist()] = self.subject.tokenizer.specials.mask
        whole, less = (self.scores(self.entered(p)) for p in (self.pieces, hidden))
        return float(whole - less)

    def _gradients(self, vectors: Tensor) -> Tensor:
        """Of the score of each row with respect to it, (B, T, D)."""
        with torch.enable_grad():
            entry = vectors.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(self.scores(entry).sum(), entry)
        return gradient
