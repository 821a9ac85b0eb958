"""What all prunings share: every weight of some matrices is multiplied with a gate, which follows
from a score of the weight and from how far the training is."""

from collections.abc import Iterable, Mapping
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from bertwright.encoder.encoder import Encoder
from bertwright.encoder.kernels.noise import Noise
from bertwright.encoder.roles import Role
from bertwright.errors import UserError
from bertwright.tasks.adaptation import Adaptation, Full
from bertwright.tasks.adaptation.changes import Changes
from bertwright.tasks.adaptation.low_rank import matrices_of
from bertwright.training.clock import Place
from bertwright.training.procedure import Procedure


class Pruned(Adaptation):
    """Everything is trained, and of the matrices in these sublayers ever fewer weights stay.

    Attributes:
        learns: whether scores are learned with the weights; else they are the sizes of these.
        penalised: whether open gates cost something.
    """

    sublayers: tuple[Literal["attention", "feed_forward"], ...] = ("attention", "feed_forward")
    learns: ClassVar[bool] = True
    penalised: ClassVar[bool] = False

    @property
    def left(self) -> Adaptation:
        return Full()

    @property
    def pace(self) -> float:
        """How many times as fast as weights scores learn."""
        return 1.0

    @property
    def start(self) -> float:
        """Every score before the first step."""
        return 0.0

    def level(self, progress: float) -> float:
        """What gates follow beside their scores, at a progress of the training."""
        raise TypeError(f"{type(self).__name__} is no pruning by itself")

    def done(self, level: float, progress: float) -> bool:
        """Whether what a last step at this level, and up to this progress, has left is what is
        wanted in the end."""
        raise TypeError(f"{type(self).__name__} is no pruning by itself")

    def gates(
        self, scores: Mapping[str, Tensor], level: float, noise: Noise | None
    ) -> dict[str, Tensor]:
        """What the weights are multiplied with, like their scores; ``noise`` is that of a step,
        None in a finished model."""
        raise TypeError(f"{type(self).__name__} is no pruning by itself")

    def cost(self, scores: Iterable[Tensor], level: float) -> Tensor:
        """What open gates add to the loss of a step, 0-d float32."""
        raise TypeError(f"{type(self).__name__} costs nothing")

    def require_left(self, shapes: Mapping[str, torch.Size]) -> None:
        """Errors: UserError where nothing would be left in the end of matrices of these shapes."""

    def changes(self, encoder: Encoder) -> "Pruning":
        names, known = matrices_of(encoder, self.sublayers), dict(encoder.named_parameters())
        if not names:
            raise UserError(
                f"adaptation.sublayers: {' and '.join(self.sublayers)} of this encoder has no "
                f"matrices: choose another"
            )
        shapes = {name: known[name].shape for name in names}
        self.require_left(shapes)
        return Pruning(self, shapes)


class Pruning(Changes):
    """Of :class:`Pruned`, for matrices of these shapes.

    What is trained are scores less their ``start``, over their ``pace``: Adam moves each parameter
    by the rate, so these move faster. Their gradient is that of the scores, so that one limit
    clips it with that of the weights.
    """

    def __init__(self, choice: Pruned, shapes: Mapping[str, torch.Size]) -> None:
        super().__init__()
        self.choice, self.names = choice, list(shapes)
        learned = shapes.values() if choice.learns else ()
        self.trained = nn.ParameterList(nn.Parameter(torch.empty(shape)) for shape in learned)
        self.course = _Course(self)
        self.procedures = [self.course]

    @property
    def parameter_roles(self) -> dict[str, Role]:
        """Scores are no matrices: nothing decays."""
        return {name: Role("gate") for name, _ in self.named_parameters()}

    @property
    def done(self) -> bool:
        return self.choice.done(self.course.level, self.course.progress)

    @property
    def penalised(self) -> bool:
        return self.choice.penalised

    @torch.no_grad()
    def begin(self, seed: int) -> None:
        self.course.begin(seed)
        for trained in self.trained:
            trained.zero_()

    def forward(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        gates = self._gates(weights)
        return {name: weights[name] * gates[name].to(weights[name]) for name in self.names}

    def penalty(self) -> Tensor:
        return self.choice.cost(self._scores().values(), self.course.level)

    def _gates(self, weights: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        if self.choice.learns:
            noise = self.course.noise if self.training else None
            return self.choice.gates(self._scores(), self.course.level, noise)
        return self.course.masks({name: weights[name].detach().abs() for name in self.names})

    def _scores(self) -> dict[str, Tensor]:
        pace, start = self.choice.pace, self.choice.start
        values = (trained.float() for trained in self.trained)
        return {
            name: start + pace * value.detach() + (value - value.detach())
            for name, value in zip(self.names, values, strict=True)
        }


class _Course(Procedure):
    """Where a pruning is, step by step. A mask by the sizes of weights stays until the level is
    another one, so a run that goes on must know it."""

    name = "pruning"

    def __init__(self, pruning: Pruning) -> None:
        self._choice = pruning.choice
        self.begin(0)

    def begin(self, seed: int) -> None:
        """Before the first step."""
        self._seed, self.progress = seed, 0.0
        self.level = self._choice.level(0.0)
        self.noise: Noise | None = None
        self._masks: dict[str, Tensor] = {}
        self._masked_at: float | None = None

    def masks(self, sizes: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The gates of weights of these sizes."""
        if self.level != self._masked_at:
            self._masks = self._choice.gates(sizes, self.level, None)
            self._masked_at = self.level
        return self._masks

    def before_step(self, place: Place) -> None:
        self.level = self._choice.level(place.progress)
        self.progress = 2 * place.middle - place.progress
        self.noise = Noise.of(self._seed, place.step)

    def state(self) -> dict[str, Tensor]:
        if self._masked_at is None:
            return {}
        at = torch.tensor(self._masked_at, dtype=torch.float64)
        return {"masked_at": at, **{f"mask.{name}": mask for name, mask in self._masks.items()}}

    def load(self, state: Mapping[str, Tensor]) -> None:
        kept = dict(state)
        if kept:
            self._masked_at = float(kept.pop("masked_at"))
            self._masks = {name.removeprefix("mask."): mask for name, mask in kept.items()}
