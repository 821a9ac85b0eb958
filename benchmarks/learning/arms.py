"""Arms of the comparison: a training with a time limit and a seed each."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from itertools import product
from typing import ClassVar, Literal

from bertwright.recipes import Recipe

INITIALIZER_RANGES = (0.02, 0.06)
"""``initializer_range`` of BERT, and one that suits these widths."""

ADAM_BETAS2 = (0.98, 0.999)
"""Second beta of RoBERTa, and the default of the libraries."""

MASKING_RATES = (0.15, 0.3)
MATRIX_LEARNING_RATES = (0.01, 0.02, 0.04)
MODERN_LEARNING_RATES = (2.5e-3, 5e-3)
"""The grid of ModernBERT, around the settings of ``modern``."""

Peer = Literal["bert", "modernbert"]
"""Stock model: with the Trainer's defaults, or set up like ``modern``."""


@dataclass(frozen=True, order=True)
class BertSetting:
    """BERT with AdamW, as the Trainer sets it up: a setting of the grid."""

    initializer_range: float
    adam_beta2: float
    learning_rate: float

    peer: ClassVar[Peer] = "bert"
    batch_size: ClassVar[int] = 16
    masking_rate: ClassVar[float] = 0.15
    warmup: ClassVar[float] = 0.1

    def __str__(self) -> str:
        rate = f"learning rate {self.learning_rate:g}"
        return f"std {self.initializer_range:g}, beta2 {self.adam_beta2:g}, {rate}"


@dataclass(frozen=True, order=True)
class ModernBertSetting:
    """ModernBERT with the optimiser family, schedule and batches of ``modern``: a setting."""

    masking_rate: float
    matrix_learning_rate: float
    learning_rate: float

    peer: ClassVar[Peer] = "modernbert"
    batch_size: ClassVar[int] = 64
    warmup: ClassVar[float] = 0.05
    adam_beta2: ClassVar[float] = 0.98

    def __str__(self) -> str:
        rates = f"learning rates {self.matrix_learning_rate:g} and {self.learning_rate:g}"
        return f"ModernBERT, Muon, {self.masking_rate:.0%} masked, {rates}"


TrainerSetting = BertSetting | ModernBertSetting

SETTINGS: Mapping[Peer, type[TrainerSetting]] = {
    "bert": BertSetting,
    "modernbert": ModernBertSetting,
}


@dataclass(frozen=True)
class TrainerArm:
    """Transformers' Trainer with a setting of the grid."""

    setting: TrainerSetting
    minutes: float
    seed: int

    @property
    def name(self) -> str:
        """Name of the arm and of its folder."""
        numbers = (f"{key}-{value:g}" for key, value in asdict(self.setting).items())
        return "_".join(
            (f"trainer-{self.setting.peer}", *numbers, f"{self.minutes:g}m", f"seed-{self.seed}")
        )


@dataclass(frozen=True)
class BertwrightArm:
    """``bertwright pretrain`` with a recipe."""

    recipe: str
    minutes: float
    seed: int

    @property
    def name(self) -> str:
        """Name of the arm and of its folder; it changes with the recipe."""
        recipe = Recipe.load(self.recipe)
        digest = sha256(recipe.as_yaml().encode()).hexdigest()[:8]
        return f"bertwright_{recipe.name}-{digest}_{self.minutes:g}m_seed-{self.seed}"


Arm = TrainerArm | BertwrightArm


@dataclass(frozen=True)
class LearningPlan:
    """A grid of settings of the Trainer, its best one, and a recipe of bertwright.

    ``grid_minutes`` may be less than ``minutes``, to shorten the grid. ``learning_rates`` are those
    of BERT; ModernBERT has a grid of its own.
    """

    size: str
    recipe: str
    minutes: float
    grid_minutes: float
    seeds: int
    learning_rates: tuple[float, ...]
    peer: Peer = "bert"

    @property
    def grid(self) -> list[TrainerArm]:
        """Every setting of the grid with the first seed."""
        settings: list[TrainerSetting] = [
            BertSetting(*values)
            for values in product(INITIALIZER_RANGES, ADAM_BETAS2, self.learning_rates)
        ]
        if self.peer == "modernbert":
            rates = product(MASKING_RATES, MATRIX_LEARNING_RATES, MODERN_LEARNING_RATES)
            settings = [ModernBertSetting(*values) for values in rates]
        return [TrainerArm(setting, self.grid_minutes, seed=0) for setting in settings]

    def trainer_arms(self, setting: TrainerSetting) -> list[TrainerArm]:
        """Return one setting with every seed."""
        return [TrainerArm(setting, self.minutes, seed) for seed in range(self.seeds)]

    @property
    def bertwright_arms(self) -> list[BertwrightArm]:
        """The recipe of bertwright with every seed."""
        return [BertwrightArm(self.recipe, self.minutes, seed) for seed in range(self.seeds)]
