"""Which pieces can be masked with the answer kept, told by gates that learn it over many texts (De
Cao et al. 2020, DiffMask)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.attention.saying import Saying
from bertwright.analysis.attribution.entering import ENTRY, entering
from bertwright.analysis.conclusions import Conclusion, concluded
from bertwright.analysis.findings import Finding, Found, Stored
from bertwright.analysis.hard_concrete import HardConcrete
from bertwright.analysis.subject import Subject
from bertwright.analysis.texts import ReadText, is_told_apart
from bertwright.encoder.stream import Coordinates
from bertwright.randomness import key, uniform
from bertwright.significance import halves, of_difference, of_ratio

Floats = NDArray[np.float64]

GATE = HardConcrete(temperature=0.2, low=-0.2, high=1.0)

OPEN_AT_FIRST = 5.0

MOST_PULL = 200.0
"""Of the answer against the number of open gates."""


class LearnedMasks(Analysis):
    """A small network per layer reads what the blocks read of a piece and its state in that layer,
    and says how likely the piece is to be masked; a piece goes through as far as the gates of all
    layers up to one that is drawn let it. On half of the texts they learn to close as many as they
    can while the answer stays within ``bound`` nats, for ``steps``; on the other half: how many
    pieces stay open, how far the answer moves, and how far it moves with as many open at random.
    The model stays as it is; its answer is the class of a text, or what stands in a hidden place.
    """

    kind: Literal["learned-masks"] = "learned-masks"
    steps: int = Field(default=150, ge=1)
    rate: float = Field(default=3e-3, gt=0)
    bound: float = Field(default=0.1, gt=0)
    most: int = Field(default=100, ge=4)
    number = "B19"
    group = "attribution"
    question = "Which pieces can be masked with the answer kept?"
    source = "De Cao et al. 2020"
    sites = (ENTRY, "blocks.*.residual")

    def lacks(self, case: Case) -> str | None:
        if len(self._chosen(case)) < 8:
            return "it needs eight texts of three pieces: four to learn by, four to judge"
        return Saying.lacks(case.subject) or super().lacks(case)

    def run(self, case: Case) -> Found:
        texts = self._chosen(case)
        learning, judging = (
            [Masked.of(case.subject, texts[n], case.seed, int(n)) for n in half]
            for half in halves(len(texts), case.seed)
        )
        gates = self.learned(case, learning)
        kept: list[tuple[int, int]] = []
        moved: list[list[float]] = []
        first: Floats | None = None
        for number, own in enumerate(judging):
            with torch.no_grad():
                is_open = gates.through(own, gates.num_layers).squeeze(-1) > 0.5
                chances = gates.chances(own, gates.num_layers)
                drawn = uniform(key(case.seed, "open"), number, own.inside.cpu().numpy())
                others = torch.zeros_like(is_open)
                as_many = torch.from_numpy(drawn).argsort()[: int(is_open[own.inside].sum())]
                others[own.inside[as_many]] = True
                others[own.outside] = is_open[own.outside]
                said = [
                    own.with_open(each.to(own.entry), gates.masked) for each in (is_open, others)
                ]
            kept.append((int(is_open[own.inside].sum()), len(own.inside)))
            moved.append([float(divergence(own.answer, each)) for each in said])
            first = chances.double().cpu().numpy() if first is None else first
        shares, ones = np.array(kept, np.float64), np.ones(len(kept))
        found, random = np.array(moved, np.float64).T
        assert first is not None, "some texts judge"
        findings = [
            Finding.over_texts("share of pieces open", of_ratio(*shares.T, seed=case.seed)),
            Finding.over_texts("answer moves, nats", of_ratio(found, seed=case.seed)),
            Finding.over_texts("answer moves, as many at random", of_ratio(random, seed=case.seed)),
            Finding.over_texts(
                "random less learned", of_difference((random, ones), (found, ones), seed=case.seed)
            ),
        ]
        return Found(findings, {"moved": np.array(moved), "first text": first})

    def conclusions(self, stored: Stored) -> list[Conclusion]:
        return [
            concluded(
                "some pieces can be masked with the answer kept",
                "most of those of SST-2, in BERT",
                stored.of_all("share of pieces open"),
                1.0,
                "all of them",
                "below",
            ),
            concluded(
                "those that gates keep hold more of the answer than as many at random",
                "the sense of an attribution",
                stored.of_all("random less learned"),
                0.0,
                "alike",
            ),
        ]

    def draw(self, stored: Stored, figure: Figure) -> None:
        moved, chances = figure.subplots(1, 2)
        moved.boxplot(stored.arrays["moved"], tick_labels=["open by gates", "as many at random"])
        moved.set_ylabel("answer moves, nats")
        picture = chances.imshow(stored.arrays["first text"], vmin=0, vmax=1, aspect="auto")
        figure.colorbar(picture, ax=chances, label="chance to be open")
        chances.set_xlabel("place of the first text")
        chances.set_ylabel("layer up to which gates decide")

    def _chosen(self, case: Case) -> list[ReadText]:
        return [text for text in case.texts[: self.most] if is_told_apart(text)]

    def learned(self, case: Case, texts: Sequence["Masked"]) -> "Gates":
        """Gates that have learned from these texts, one of them a step."""
        generator = torch.Generator().manual_seed(key(case.seed, "learned masks") >> 1)
        gates = Gates(texts[0].entry.shape[-1], len(texts[0].states), case.subject, generator)
        update = torch.optim.Adam(gates.parameters(), self.rate)
        pull = texts[0].entry.new_ones(())
        for step in range(self.steps):
            own = texts[step % len(texts)]
            layer = int(torch.randint(gates.num_layers + 1, (), generator=generator))
            with torch.enable_grad():
                through = gates.through(own, layer, generator)
                said = own.with_open(through, gates.masked)
                apart = divergence(own.answer, said) - self.bound
                is_open = gates.chances(own, layer)[-1][own.inside].mean()
                update.zero_grad()
                (is_open + pull * apart).backward()
            update.step()
            pull = (pull + 0.5 * apart.detach()).clamp(0, MOST_PULL)
        return gates


@dataclass(frozen=True)
class Masked:
    """A text whose pieces may be masked.

    Attributes:
        saying: it and the answer to it as it is.
        entry: (T, D) what the blocks read; ``states`` what each of them gives.
        inside: the places that may be masked; ``outside`` the others.
    """

    subject: Subject
    saying: Saying
    entry: Tensor
    states: Sequence[Tensor]
    inside: Tensor
    outside: Tensor

    @staticmethod
    @torch.no_grad()
    def of(subject: Subject, text: ReadText, seed: int, number: int) -> "Masked":
        """With the answer as it is."""
        saying = Saying.of(subject, text, seed, number)
        with subject.encoder.record(ENTRY, "blocks.*.residual") as values:
            saying.said()
        states = [values[f"blocks.{n}.residual"][0] for n in range(subject.num_layers)]
        may = torch.from_numpy(text.word >= 0).to(values[ENTRY].device)
        if saying.place is not None:
            may[saying.place] = False
        inside, outside = may.nonzero().flatten(), (~may).nonzero().flatten()
        return Masked(subject, saying, values[ENTRY][0], states, inside, outside)

    @property
    def answer(self) -> Tensor:
        """To the text as it is, (K,)."""
        return self.saying.answer

    def with_open(self, through: Tensor, masked: Tensor) -> Tensor:
        """The answer (K,) where as much of each piece goes through, (T,) or (T, 1), and the rest is
        ``masked`` (D,)."""
        open_ = through.view(-1, 1)
        return self._said(open_ * self.entry + (1 - open_) * masked)

    def _said(self, vectors: Tensor) -> Tensor:
        with entering(self.subject, vectors[None]):
            return self.saying.said()


class Gates(nn.Module):
    """A network for each layer, from the embeddings on, and what stands for a masked piece."""

    def __init__(
        self, width: int, num_layers: int, subject: Subject, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.num_layers = num_layers
        device = subject.text_model.device
        mask = torch.tensor([[subject.tokenizer.specials.mask]], device=device)
        with torch.no_grad(), subject.encoder.record(ENTRY) as values:
            subject.encoder(mask, Coordinates.plain(mask), stop_after=0)
        self.masked = nn.Parameter(values[ENTRY][0, 0].clone())
        narrow = max(8, width // 4)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(2 * width, narrow), nn.Tanh(), nn.Linear(narrow, 1))
            for _ in range(num_layers + 1)
        )
        for layer in self.layers:
            for parameter in layer.parameters():
                drawn = torch.randn(parameter.shape, generator=generator)
                parameter.data.copy_(drawn * parameter.shape[-1] ** -0.5)
            layer[2].weight.data.mul_(0.1)  # type: ignore[index]
            layer[2].bias.data.fill_(OPEN_AT_FIRST)  # type: ignore[index]
        self.to(device, self.masked.dtype)

    def logits(self, own: Masked, layer: int) -> list[Tensor]:
        """Of the gates of all layers up to this one, (T,) each."""
        states = [own.entry, *own.states][: layer + 1]
        return [
            network(torch.cat((_scaled(own.entry), _scaled(each)), -1))[:, 0]
            for network, each in zip(self.layers, states, strict=False)
        ]

    def chances(self, own: Masked, layer: int) -> Tensor:
        """How likely each piece is to be open by all gates up to a layer, (layers, T)."""
        return torch.stack([GATE.open_chance(each) for each in self.logits(own, layer)]).cumprod(0)

    def through(self, own: Masked, layer: int, generator: torch.Generator | None = None) -> Tensor:
        """How much of each piece goes through all gates up to this layer, (T, 1): drawn, or as the
        gates are. What may not be masked goes through."""
        total = torch.ones_like(own.entry[:, 0])
        for logits in self.logits(own, layer):
            drawn = None
            if generator is not None:
                drawn = torch.rand(logits.shape, generator=generator).to(logits)
            total = total * GATE.gates(logits, drawn)
        kept = torch.ones_like(total).index_put((own.inside,), total[own.inside])
        return kept[:, None]


def divergence(answer: Tensor, other: Tensor) -> Tensor:
    """How far another answer (K,) is from the one that should be kept, in nats."""
    return F.kl_div(other.clamp(min=1e-12).log(), answer, reduction="sum")


def _scaled(states: Tensor) -> Tensor:
    return F.layer_norm(states, states.shape[-1:])
