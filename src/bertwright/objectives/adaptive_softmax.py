"""Adaptive softmax: frequent pieces are named at once, rare ones by their cluster first (Grave et
al. 2017)."""

from typing import ClassVar, Literal, cast

import torch
import torch.nn.functional as F
from pydantic import Field, field_validator
from torch import Tensor, nn

from bertwright.encoder.adaptive import Adaptive, AdaptiveTable, ascending, clusters, widths
from bertwright.encoder.choice import EncoderChoice
from bertwright.encoder.embeddings import Embeddings
from bertwright.encoder.kernels.cross_entropy import PLAIN, cross_entropy
from bertwright.encoder.kernels.lookup import table
from bertwright.encoder.roles import Role

from .output import Output, OutputChoice


class AdaptiveSoftmax(OutputChoice):
    """The head names one of the pieces before the first cutoff, or a cluster; the tail of each
    cluster names one of its pieces. Pieces must be numbered by their frequency.

    ``narrower`` None shares the tables of the embeddings, and their projections but the first
    where they are adaptive as well (Dai et al. 2019); a number gives every cluster a table of its
    own, each narrower by that factor than the one before. Cutoffs beyond the vocabulary are left
    out.
    """

    kind: Literal["adaptive"] = "adaptive"
    transform: bool = False
    cutoffs: tuple[int, ...] = Field(max_length=64)
    narrower: int | None = Field(default=None, ge=1, le=65_536)

    @field_validator("cutoffs")
    @classmethod
    def _cutoffs(cls, cutoffs: tuple[int, ...]) -> tuple[int, ...]:
        return ascending(cutoffs)

    @field_validator("smoothing")
    @classmethod
    def _in_steps(cls, smoothing: float) -> float:
        if smoothing:
            raise ValueError("clusters are named in steps, which no target is spread over: set 0")
        return smoothing

    @property
    def tied(self) -> bool:
        return self.narrower is None

    def operations(self, encoder: EncoderChoice, vocabulary_size: int) -> float:
        """The tail of a cluster counts for the share of questions that it has by Zipf's law."""
        width = self.width(encoder)
        head, *tails = clusters(self.cutoffs, vocabulary_size)
        harmonic = torch.arange(1, vocabulary_size + 1, dtype=torch.float64).reciprocal()
        shares = [float(harmonic[t.start : t.stop].sum() / harmonic.sum()) for t in tails]
        tables = encoder.embeddings
        shared = tables.narrower if self.tied and isinstance(tables, Adaptive) else None
        narrower = self.narrower or shared
        projected = 0 if narrower is None else width
        total = 2.0 * width * (len(head) + len(tails) + (0 if shared is None else width))
        inner = widths(width, narrower or 1, len(tails) + 1)[1:]
        for share, tail, narrow in zip(shares, tails, inner, strict=True):
            total += share * 2 * narrow * (len(tail) + projected)
        return total + (2 * encoder.part_width * width if self.transform else 0)

    def build(self, encoder: EncoderChoice, vocabulary_size: int) -> "AdaptiveOutput":
        return AdaptiveOutput(self, encoder, vocabulary_size)


class AdaptiveOutput(Output):
    """As any output, in two steps. ``tables`` holds those that are its own or shared; without any
    they are slices of the one table that is handed in."""

    parameter_roles: ClassVar[dict[str, Role]] = {
        "bias": Role("bias"),
        "cluster_bias": Role("bias"),
        "cluster_weight": Role("matrix"),
    }

    def __init__(
        self, choice: AdaptiveSoftmax, encoder: EncoderChoice, vocabulary_size: int
    ) -> None:
        super().__init__(choice, encoder, vocabulary_size, None)
        width = choice.width(encoder)
        self.clusters = clusters(choice.cutoffs, vocabulary_size)
        number = len(self.clusters) - 1
        self.cluster_weight = nn.Parameter(torch.empty(number, width))
        self.cluster_bias = nn.Parameter(torch.zeros(number)) if choice.bias else None
        self.tables, self.projections = nn.ModuleList(), nn.ModuleList()
        if choice.narrower is not None:
            inner = widths(width, choice.narrower, number + 1)
            for cluster, narrow in zip(self.clusters, inner, strict=True):
                self.tables.append(table(len(cluster), narrow))
                own = nn.Linear(narrow, width, bias=False) if len(self.projections) else None
                self.projections.append(own or nn.Identity())

    def share(self, embeddings: Embeddings) -> None:
        shared = embeddings.pieces
        if len(self.tables) or not isinstance(shared, AdaptiveTable):
            return
        width = self.cluster_weight.shape[1]
        self.tables = shared.tables
        first = nn.Linear(width, width, bias=False)
        self.projections = nn.ModuleList([first, *list(shared.projections)[1:]])

    def row_logits(self, states: Tensor, embedding: Tensor) -> Tensor:
        """states (M, D) to the logarithms of probabilities (M, V)."""
        hidden = self._hidden(states)
        head = F.log_softmax(F.linear(*self._head(hidden, embedding)), dim=1)
        num_frequent = len(self.clusters[0])
        found = [head[:, :num_frequent]]
        for number in range(1, len(self.clusters)):
            tail = F.log_softmax(F.linear(*self._cluster(number, hidden, embedding)), dim=1)
            found.append(head[:, num_frequent + number - 1, None] + tail)
        return torch.cat(found, dim=1)

    def loss(
        self, states: Tensor, embedding: Tensor, target: Tensor, weight: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The sum of losses and of right answers at states (M, D): an answer is right if both of
        its steps are."""
        hidden = self._hidden(states)
        num_frequent = len(self.clusters[0])
        starts = torch.tensor([c.start for c in self.clusters[1:]], device=target.device)
        cluster = torch.bucketize(target, starts, right=True)
        step = torch.where(cluster == 0, target, num_frequent + cluster - 1)
        entered, rows, bias = self._head(hidden, embedding)
        loss, right = cross_entropy(entered, rows, bias, step, weight, PLAIN, self.z_loss)
        for number in range(1, len(self.clusters)):
            asked = (cluster == number).nonzero().squeeze(1)
            if not len(asked):
                continue
            tail = self._cluster(number, hidden[asked], embedding)
            within = target[asked] - self.clusters[number].start
            weights = None if weight is None else weight[asked]
            more, _ = cross_entropy(*tail, within, weights, PLAIN, self.z_loss)
            loss = loss + more
            with torch.no_grad():
                found = F.linear(entered[asked], rows, bias).argmax(1) == step[asked]
                missed = found & (F.linear(*tail).argmax(1) != within)
                right = right - (missed if weights is None else missed * weights).sum()
        return loss, right

    def compile_parts(self) -> None:
        """Compile the transform; how many questions fall into a cluster is another number in every
        step."""
        self.transform.compile(dynamic=False)

    def _head(self, hidden: Tensor, embedding: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        entered, rows, bias = self._cluster(0, hidden, embedding)
        rows = torch.cat((rows, self.cluster_weight))
        if bias is not None and self.cluster_bias is not None:
            bias = torch.cat((bias, self.cluster_bias))
        return entered, rows, bias

    def _cluster(
        self, number: int, hidden: Tensor, embedding: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """What is multiplied with the table of a cluster, the table, and its biases."""
        within = slice(self.clusters[number].start, self.clusters[number].stop)
        bias = None if self.bias is None else self.bias[within]
        if not len(self.tables):
            return hidden, embedding[within], bias
        projection = self.projections[number]
        if isinstance(projection, nn.Linear):
            hidden = F.linear(hidden, projection.weight.t())
        return hidden, cast(nn.Embedding, self.tables[number]).weight, bias
