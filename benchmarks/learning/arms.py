"""Arms of the comparison: a training with a time limit and a seed each."""

from dataclasses import asdict, dataclass
from hashlib import sha256
from itertools import product

from bertwright.recipes import Recipe

INITIALIZER_RANGES = (0.02, 0.06)
"""``initializer_range`` of BERT, and one that suits these widths."""

ADAM_BETAS2 = (0.98, 0.999)
"""Second beta of RoBERTa, and the default of the libraries."""


@dataclass(frozen=True, order=True)
class TrainerSetting:
    """A setting of the grid of the Trainer."""

    initializer_range: float
    adam_beta2: float
    learning_rate: float

    def __str__(self) -> str:
        rate = f"learning rate {self.learning_rate:g}"
        return f"std {self.initializer_range:g}, beta2 {self.adam_beta2:g}, {rate}"


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
        return "_".join(("trainer", *numbers, f"{self.minutes:g}m", f"seed-{self.seed}"))


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

    ``grid_minutes`` may be less than ``minutes``, to shorten the grid.
    """

    size: str
    recipe: str
    minutes: float
    grid_minutes: float
    seeds: int
    learning_rates: tuple[float, ...]

    @property
    def grid(self) -> list[TrainerArm]:
        """Every setting of the grid with the first seed."""
        settings = [
            TrainerSetting(*values)
            for values in product(INITIALIZER_RANGES, ADAM_BETAS2, self.learning_rates)
        ]
        return [TrainerArm(setting, self.grid_minutes, seed=0) for setting in settings]

    def trainer_arms(self, setting: TrainerSetting) -> list[TrainerArm]:
        """Return one setting with every seed."""
        return [TrainerArm(setting, self.minutes, seed) for seed in range(self.seeds)]

    @property
    def bertwright_arms(self) -> list[BertwrightArm]:
        """The recipe of bertwright with every seed."""
        return [BertwrightArm(self.recipe, self.minutes, seed) for seed in range(self.seeds)]
