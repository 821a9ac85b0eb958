"""The base classes of weight pruning.

Weights are multiplied by gates, which depend on a score per weight and on the training progress.
"""

from collections.abc import Iterable, Mapping
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from bertwright.core.errors import UserError
from bertwright.encoder.config import EncoderConfig
from bertwright.encoder.encoder import Encoder
from bertwright.modules.dropout_rng import DropoutRng
from bertwright.modules.parameter_roles import ParameterRole
from bertwright.tasks.adapters import AdaptationConfig, FullFineTuningConfig
from bertwright.tasks.adapters.lora import matrix_names
from bertwright.tasks.adapters.parametrisation import WeightParametrisation
from bertwright.training.callbacks.callback import Callback
from bertwright.training.clock import Progress


class WeightPruning(AdaptationConfig):
    """An adaptation that trains all weights and prunes the matrices in some sublayers.

    Attributes:
        learns_scores: True if scores are trained with the weights; otherwise they are magnitudes.
        has_penalty: True if open gates add a penalty to the loss.
    """

    sublayers: tuple[Literal["attention", "feed_forward"], ...] = ("attention", "feed_forward")
    learns_scores: ClassVar[bool] = True
    has_penalty: ClassVar[bool] = False

    def stored_with(self, encoder: EncoderConfig) -> AdaptationConfig:
        return FullFineTuningConfig()

    @property
    def score_scale(self) -> float:
        """How many times faster scores are trained than weights."""
        return 1.0

    def init_scores(self, weight: Tensor) -> Tensor:
        """Return the initial scores of a matrix."""
        return torch.zeros_like(weight)

    def level(self, fraction: float) -> float:
        """Return the density, threshold or penalty at this fraction of the training."""
        raise TypeError(f"{type(self).__name__} does not implement level")

    def is_done(self, level: float, fraction: float) -> bool:
        """Return True if the last step has reached the final level."""
        raise TypeError(f"{type(self).__name__} does not implement is_done")

    def gates(
        self, scores: Mapping[str, Tensor], level: float, rng: DropoutRng | None
    ) -> dict[str, Tensor]:
        """Return the factors of the weights, in the shapes of the scores.

        ``rng`` is the random generator of the step; None in a finished model.
        """
        raise TypeError(f"{type(self).__name__} does not implement gates")

    def compute_penalty(self, scores: Iterable[Tensor], level: float) -> Tensor:
        """Return the penalty of open gates, 0-d float32."""
        raise TypeError(f"{type(self).__name__} has no penalty")

    def require_nonempty(self, shapes: Mapping[str, torch.Size]) -> None:
        """Raise UserError if pruning would leave nothing of a matrix of these shapes."""

    def build_parametrisation(self, encoder: Encoder) -> "PruningGates":
        names = matrix_names(encoder, self.sublayers)
        parameters = dict(encoder.named_parameters())
        if not names:
            raise UserError(
                f"adaptation.sublayers: {' and '.join(self.sublayers)} of this encoder has no "
                f"matrices: choose another"
            )
        shapes = {name: parameters[name].shape for name in names}
        self.require_nonempty(shapes)
        return PruningGates(self, shapes)


class PruningGates(WeightParametrisation):
    """The gates of weight pruning, for matrices of given shapes.

    The trained parameters are scores / ``score_scale``: Adam changes every parameter by about the
    learning rate, so the scores change faster. Their gradient is the scores' gradient, so it is
    clipped together with the gradient of the weights.
    """

    def __init__(self, config: WeightPruning, shapes: Mapping[str, torch.Size]) -> None:
        super().__init__()
        self.config, self.matrix_names = config, list(shapes)
        score_shapes = shapes.values() if config.learns_scores else ()
        self.learned_scores = nn.ParameterList(
            nn.Parameter(torch.empty(shape)) for shape in score_shapes
        )
        self.schedule = _PruningSchedule(self)
        self.callbacks = [self.schedule]

    @property
    def parameter_roles(self) -> dict[str, ParameterRole]:
        """Return the role of every score: a gate, without weight decay."""
        return {name: ParameterRole("gate") for name, _ in self.named_parameters()}

    @property
    def is_final(self) -> bool:
        return self.config.is_done(self.schedule.level, self.schedule.fraction)

    @property
    def has_penalty(self) -> bool:
        return self.config.has_penalty

    @torch.no_grad()
    def init_parameters(self, seed: int, weights: Mapping[str, Tensor]) -> None:
        self.schedule.reset(seed)
        for name, parameter in zip(
            self.matrix_names, self.learned_scores, strict=self.config.learns_scores
        ):
            parameter.copy_(self.config.init_scores(weights[name]) / self.config.score_scale)

    def forward(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        gates = self._gates(weights)
        return {name: weights[name] * gates[name].to(weights[name]) for name in self.matrix_names}

    def penalty(self) -> Tensor:
        return self.config.compute_penalty(self._scores().values(), self.schedule.level)

    def _gates(self, weights: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        if self.config.learns_scores:
            rng = self.schedule.rng if self.training else None
            return self.config.gates(self._scores(), self.schedule.level, rng)
        return self.schedule.masks(
            {name: weights[name].detach().abs() for name in self.matrix_names}
        )

    def _scores(self) -> dict[str, Tensor]:
        scale = self.config.score_scale
        values = (parameter.float() for parameter in self.learned_scores)
        return {
            name: scale * value.detach() + (value - value.detach())
            for name, value in zip(self.matrix_names, values, strict=True)
        }


class _PruningSchedule(Callback):
    """The schedule of a pruning.

    A mask from magnitudes stays the same until the level changes, so it is stored in checkpoints.
    """

    name = "pruning"

    def __init__(self, gates: PruningGates) -> None:
        self._config = gates.config
        self.reset(0)

    def reset(self, seed: int) -> None:
        """Return to the state before the first step."""
        self._seed, self.fraction = seed, 0.0
        self.level = self._config.level(0.0)
        self.rng: DropoutRng | None = None
        self._masks: dict[str, Tensor] = {}
        self._mask_level: float | None = None

    def masks(self, magnitudes: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Return the gates for weights of these magnitudes."""
        if self.level != self._mask_level:
            self._masks = self._config.gates(magnitudes, self.level, None)
            self._mask_level = self.level
        return self._masks

    def before_step(self, progress: Progress) -> None:
        self.level = self._config.level(progress.fraction)
        self.fraction = 2 * progress.midpoint - progress.fraction
        self.rng = DropoutRng.for_step(self._seed, progress.step)

    def state(self) -> dict[str, Tensor]:
        if self._mask_level is None:
            return {}
        level = torch.tensor(self._mask_level, dtype=torch.float64)
        return {"masked_at": level, **{f"mask.{name}": mask for name, mask in self._masks.items()}}

    def load(self, state: Mapping[str, Tensor]) -> None:
        tensors = dict(state)
        if tensors:
            self._mask_level = float(tensors.pop("masked_at"))
            self._masks = {name.removeprefix("mask."): mask for name, mask in tensors.items()}
