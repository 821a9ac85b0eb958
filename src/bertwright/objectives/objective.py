"""An objective is a question asked of a text: who answers it, and how the answer is scored."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from pydantic import Field
from torch import Tensor, nn

from bertwright.axes import Choice
from bertwright.encoder.decoder import Decoder
from bertwright.encoder.embeddings import Embeddings
from bertwright.encoder.encoder import EncoderChoice
from bertwright.encoder.kernels.noise import Noise
from bertwright.encoder.stream import Coordinates
from bertwright.encoder.visibility import Bidirectional, Visibility
from bertwright.errors import UserError
from bertwright.examples.coordinates import Rows
from bertwright.examples.questions import Question
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

    def question(self, name: str, whose: str) -> Question:
        """The question that an objective called ``name`` has asked before."""
        if name not in self.before:
            raise UserError(f"{whose} asks about what {name!r} hides: list {name!r} before it")
        return self.before[name]


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


@dataclass(frozen=True)
class Loss:
    """A loss on its way to the one place that divides: its sum (0-d float32, differentiable), the
    number of questions, and the number of right answers (0-d)."""

    sum: Tensor
    count: float
    correct: Tensor


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
        states: (B, L, D) of the encoder.
        embedding: (V, E), the table of pieces.
        output: over the vocabulary, where the model has one.
        notes: what the encoder says of its pass beside the states, by name.
        coordinates: of the places that the encoder saw.
        decoder: reads the states, where the model has one.
        noise: of the step, for what is dropped after the encoder.
    """

    pieces: Tensor
    states: Tensor
    embedding: Tensor
    output: Output | None
    notes: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])
    coordinates: Coordinates | None = None
    decoder: Decoder | None = None
    noise: Noise | None = None

    def at(self, where: Tensor) -> Tensor:
        """The states (M, D) at flat places (M,)."""
        return self.states.flatten(0, 1).index_select(0, where)

    def piece_loss(self, asked: Asked, shift: int = 0) -> Loss:
        """The loss of naming pieces from the states ``shift`` places before the asked ones."""
        assert self.output is not None, "an objective that names pieces is built with an output"
        chosen = self.at(asked.where - shift)
        loss, correct = self.output.loss(chosen, self.embedding, asked.target, asked.weight)
        return Loss(loss, asked.count, correct)

    def piece_logits(self, asked: Asked, shift: int = 0) -> Tensor:
        """The logits (M, V) that this loss is one of."""
        assert self.output is not None, "an objective that names pieces is built with an output"
        return self.output.logits(self.at(asked.where - shift), self.embedding)


class Objective(Choice):
    """The axis. ``weight`` scales the mean loss where several questions are asked at once.
    Questions with a ``share`` take turns, one in a step, each in that share of the steps; those
    without are asked in every step."""

    weight: Value = Constant(value=1.0)
    share: float | None = Field(default=None, gt=0.0)

    visibility: ClassVar[Visibility] = Bidirectional()
    """Who may see whom while this question is asked, beside the encoder's own rule."""

    names_pieces: ClassVar[bool] = False
    """Whether the answer is a piece, given by the model's output module."""

    guesses: ClassVar[bool] = True
    """Whether there are right answers among others, so that who knows nothing can guess."""

    decodes: ClassVar[bool] = False
    """Whether the answers are read from a decoder."""

    rewrites: ClassVar[bool] = False
    """Whether its own module is asked before the encoder, and changes what that sees."""

    def ask(self, rows: Rows, asking: Asking) -> tuple[Rows, Question]:
        """The rows with what is hidden or altered, and what is asked where."""
        raise TypeError(f"{type(self).__name__} is an axis, not an objective")

    def head(self, host: Host) -> nn.Module | None:
        """The module of this objective's own that answers, if it has one."""
        return None

    def num_choices(self, vocabulary_size: int) -> int:
        """How many answers there are to choose from."""
        return vocabulary_size

    def rewrite(self, asked: Asked, draft: Draft, head: nn.Module | None) -> tuple[Tensor, Loss]:
        """Answer before the encoder: the pieces (B, L) that it is to see, and the score."""
        raise TypeError(f"{type(self).__name__} changes nothing that the encoder sees")

    def answer(self, asked: Asked, reading: Reading, head: nn.Module | None) -> Loss:
        """Answer and score."""
        raise TypeError(f"{type(self).__name__} is an axis, not an objective")

    def logits(self, asked: Asked, reading: Reading, head: nn.Module | None) -> Tensor | None:
        """Of every choice (M, C), for whoever looks at the answers; None where there is no choice.

        An objective that rewrites gives them by :meth:`draft_logits`.
        """
        return reading.piece_logits(asked) if self.names_pieces else None

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


def visibility_of(objectives: Sequence[Objective]) -> Visibility:
    """What all objectives that share a pass agree on; ValueError where they contradict."""
    rules = [objective.visibility for objective in objectives] or [Bidirectional()]
    if any(rule != rules[0] for rule in rules):
        names = ", ".join(type(objective).__name__ for objective in objectives)
        raise ValueError(
            f"{names} see the text differently: ask them in phases of their own, or give each a "
            f"share of the steps"
        )
    return rules[0]
