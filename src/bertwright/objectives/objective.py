"""An objective is a question asked of a text: who answers it, and how the answer is scored."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from bertwright.axes import Choice
from bertwright.encoder.choice import EncoderChoice
from bertwright.encoder.decoder import Decoder
from bertwright.encoder.embeddings import Embeddings
from bertwright.encoder.kernels.noise import Noise
from bertwright.encoder.stream import Coordinates
from bertwright.encoder.visibility import Bidirectional, Visibility
from bertwright.examples.assembly import Assembly
from bertwright.examples.coordinates import Need, Rows
from bertwright.examples.questions import Question
from bertwright.examples.selection import Chosen
from bertwright.examples.vocabulary import Vocabulary
from bertwright.randomness import Draw
from bertwright.schedules import Constant, Value

from .output import Output


@dataclass(frozen=True)
class Asking:
    """Where in a training run a question is asked.

    ``draw`` knows the seed and which rows these are: whatever is random is a function of them.
    ``before`` holds what was asked of these rows already, by the names of the objectives.
    """

    draw: Draw
    vocabulary: Vocabulary
    progress: float = 0.0
    before: Mapping[str, Question] = field(default_factory=dict[str, Question])


@dataclass(frozen=True)
class Asked:
    """A question on the device: where (M,) int64 flat places, target (M,) int64, weight (M,)
    float32 or None where every weight is 1, the sum of the weights, and what else the answer
    depends on, (M,) int64 each."""

    where: Tensor
    target: Tensor
    weight: Tensor | None
    count: float
    beside: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])

    def score(self, losses: Tensor, right: Tensor) -> "Loss":
        """Losses (M,) and which answers are right (M,), each by its weight."""
        if self.weight is not None:
            losses, right = losses * self.weight, right * self.weight
        return Loss(losses.sum(), self.count, right.float().sum())


@dataclass(frozen=True)
class Loss:
    """A loss on its way to the one place that divides: its sum (0-d float32, differentiable), the
    number of questions, and the number of right answers (0-d). Where they are answered by yes or
    no, ``leaning`` is how much each leans to yes (M,), and whether that is right (M,)."""

    sum: Tensor
    count: float
    correct: Tensor
    leaning: tuple[Tensor, Tensor] | None = None


@dataclass(frozen=True)
class Host:
    """What an objective's own module is built for: an encoder, and the tables that it may share."""

    choice: EncoderChoice
    embeddings: Embeddings
    vocabulary_size: int


@dataclass(frozen=True)
class Draft:
    """What the encoder is about to see: pieces (B, L), and all else that it is told.

    ``first_place`` is the number of the first of these places in the global batch.
    """

    pieces: Tensor
    coordinates: Coordinates
    rule: Visibility
    noise: Noise | None
    first_place: int


@dataclass(frozen=True)
class Reading:
    """What the answers to a batch are read from.

    Attributes:
        pieces: (B, L) that the encoder saw.
        states: (B, L, D) of the encoder, or (M, D) of the places that are read.
        embedding: (V, E), the table of pieces.
        output: over the vocabulary, where the model has one.
        notes: what the encoder says of its pass beside the states, by name.
        coordinates: of the places that the encoder saw.
        decoder: reads the states, where the model has one.
        noise: of the step, for what is dropped after the encoder.
        wanted: (M,) the flat places whose states alone there are; None where they are all there.
    """

    pieces: Tensor
    states: Tensor
    embedding: Tensor
    output: Output | None
    notes: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])
    coordinates: Coordinates | None = None
    decoder: Decoder | None = None
    noise: Noise | None = None
    wanted: Tensor | None = None

    def at(self, where: Tensor) -> Tensor:
        """The states (M, D) at flat places (M,)."""
        if self.wanted is None:
            return self.states.flatten(0, 1).index_select(0, where)
        row = where.new_empty(self.pieces.numel())
        row[self.wanted] = torch.arange(len(self.wanted), device=where.device)
        return self.states.index_select(0, row[where])

    def piece_loss(self, states: Tensor, asked: Asked) -> Loss:
        """The loss of naming what is asked for from states (M, D)."""
        assert self.output is not None, "an objective that names pieces is built with an output"
        loss, correct = self.output.loss(states, self.embedding, asked.target, asked.weight)
        return Loss(loss, asked.count, correct)

    def piece_logits(self, states: Tensor) -> Tensor:
        """The logits (M, V) that this loss is one of."""
        assert self.output is not None, "an objective that names pieces is built with an output"
        return self.output.logits(states, self.embedding)


class Objective(Choice):
    """The axis. ``weight`` scales the mean loss where several questions are asked at once.
    Questions with a ``share`` take turns, one in a step, each in that share of the steps; those
    without are asked in every step. ``task`` is the number of the vector that is added while this
    is asked, in an encoder with ``embeddings.tasks`` (Sun et al. 2019b)."""

    weight: Value = Constant(value=1.0)
    share: float | None = Field(default=None, gt=0.0)
    task: int | None = Field(default=None, ge=0, le=1_024)

    reads_documents: ClassVar[bool] = False
    """Whether its answers depend on what of their documents is not in the rows."""

    names_pieces: ClassVar[bool] = False
    """Whether the answer is a piece, given by the model's output module."""

    shares_table: ClassVar[bool] = False
    """Whether its own module reads the table of pieces."""

    guesses: ClassVar[bool] = True
    """Whether there are right answers among others, so that who knows nothing can guess."""

    decodes: ClassVar[bool] = False
    """Whether the answers are read from a decoder."""

    hides: ClassVar[bool] = False
    """Whether the encoder does not see the pieces that are asked for, or not where they stood: what
    share of the text that is gets reported."""

    disturbs: ClassVar[bool] = False
    """Whether the encoder sees all of a text worse for it: held-out text is asked it by itself."""

    rewrites: ClassVar[bool] = False
    """Whether its own module is asked before the encoder, and changes what that sees."""

    @property
    def rearranges(self) -> bool:
        """Whether pieces that it does not ask for come to stand elsewhere than in the text."""
        return False

    @property
    def own_rows(self) -> Assembly | None:
        """How the rows of its turn are assembled, at the length of all others; None where it asks
        of the rows that the recipe assembles."""
        return None

    @property
    def visibility(self) -> Visibility | None:
        """Who may see whom while this question is asked, beside the encoder's own rule; None where
        that is left to the questions beside it."""
        return Bidirectional()

    def misplaced(
        self, before: "Mapping[str, Objective]", behind: "Mapping[str, Objective]"
    ) -> str | None:
        """Why it cannot be asked between those listed before it and behind it, in words."""
        return None

    def ask(self, rows: Rows, asking: Asking) -> tuple[Rows, Question]:
        """The rows with what is hidden or altered, and what is asked where."""
        raise TypeError(f"{type(self).__name__} is an axis, not an objective")

    def ask_for(
        self, chosen: Chosen, hidden: NDArray[np.bool_], rows: Rows, vocabulary: Vocabulary
    ) -> tuple[Rows, Question] | None:
        """The same for places that somebody else has chosen. None of the ``hidden`` pieces (B, L),
        chosen ones among them, is seen by the states that name them, but by a causal model what
        stands before. None where the encoder does not name pieces of the text before it."""
        return None

    def within_task(self, rows: Rows) -> Rows:
        """The rows, told which task they are of."""
        if self.task is None:
            return rows
        task = np.full(rows.pieces.shape, self.task, np.int32)
        return replace(rows, coordinates=replace(rows.coordinates, task=task))

    def head(self, host: Host) -> nn.Module | None:
        """The module of this objective's own that answers, if it has one."""
        return None

    @property
    def needs(self) -> frozenset[Need]:
        """What it reads that not every data set has."""
        return frozenset()

    def num_choices(self, vocabulary_size: int) -> int:
        """How many answers there are to choose from."""
        return vocabulary_size

    def per_place(self, length: int) -> float:
        """How many pieces the output of the model names for every place of rows of this length."""
        return 0.0

    def read_places(self, length: int, together: Mapping[str, "Objective"]) -> float:
        """How many states are read for every place of rows of this length, where :meth:`places`
        says which; ``together`` are all questions that are asked of them."""
        return 1.0

    def decoded_positions(self, length: int) -> int:
        """How many positions a decoder needs for the answers to rows of this length."""
        return 0

    @property
    def added_places(self) -> float:
        """How many places it lays behind those of a row, as a share of them."""
        return 0.0

    def head_operations(
        self,
        encoder: EncoderChoice,
        vocabulary_size: int,
        length: int,
        together: Mapping[str, "Objective"],
    ) -> float:
        """Floating-point operations of a head of its own that names pieces, for every place of rows
        of this length; ``together`` are all questions that are asked of them."""
        return 0.0

    def drafter(self, encoder: EncoderChoice) -> EncoderChoice | None:
        """The encoder of the network that answers before the encoder reads, where there is one.

        Errors: ValueError where there is none for such an encoder.
        """
        return None

    def rewrite(self, asked: Asked, draft: Draft, head: nn.Module | None) -> tuple[Tensor, Loss]:
        """Answer before the encoder: the pieces (B, L) that it is to see, and the score."""
        raise TypeError(f"{type(self).__name__} changes nothing that the encoder sees")

    def places(self, asked: Asked) -> Tensor | None:
        """The flat places (M,) whose states alone the answer is read from; None where it is read
        from most of them."""
        return None

    def states(self, asked: Asked, reading: Reading) -> Tensor:
        """The states (M, D) that pieces are named from, where they are named."""
        return reading.at(asked.where)

    def answer(self, asked: Asked, reading: Reading, head: nn.Module | None) -> Loss:
        """Answer and score: here, by naming pieces."""
        return reading.piece_loss(self.states(asked, reading), asked)

    def logits(self, asked: Asked, reading: Reading, head: nn.Module | None) -> Tensor | None:
        """Of every choice (M, C), for whoever looks at the answers; None where there is no choice.

        An objective that rewrites gives them by :meth:`draft_logits`.
        """
        if not self.names_pieces:
            return None
        return reading.piece_logits(self.states(asked, reading))

    def draft_logits(self, asked: Asked, draft: Draft, head: nn.Module | None) -> Tensor | None:
        """The same of an objective that is asked before the encoder."""
        return None

    def right(self, target: Tensor, seen: Tensor) -> Tensor:
        """The number of the right choice (M,), where these pieces (M,) are seen."""
        return target

    def name_choice(self, choice: int, piece: Callable[[int], str]) -> str:
        """A choice in words; ``piece`` names pieces."""
        return piece(choice) if self.names_pieces else str(choice)

    def name_target(self, target: int, piece: Callable[[int], str]) -> str:
        """What is asked for, in words, before anything is rewritten."""
        return self.name_choice(target, piece)

    def name_beside(
        self, beside: Mapping[str, int], piece: Callable[[int], str]
    ) -> dict[str, int | str]:
        """What else the answer depends on, in words where it has some."""
        return dict(beside)


def visibility_of(objectives: Sequence[Objective]) -> Visibility:
    """What all objectives that share a pass agree on; ValueError where they contradict."""
    rules = [rule for o in objectives if (rule := o.visibility) is not None] or [Bidirectional()]
    if any(rule != rules[0] for rule in rules):
        names = ", ".join(dict.fromkeys(str(objective.kind) for objective in objectives))  # type: ignore[attr-defined]
        raise ValueError(
            f"{names} see the text differently: ask them in phases of their own, or give each a "
            f"share of the steps"
        )
    return rules[0]
