"""The arms of the comparison: a training each, in a time, from a seed."""

from dataclasses import asdict, dataclass
from hashlib import sha256
from itertools import product

from bertwright.recipes import Recipe

DEVIATIONS = (0.02, 0.06)
"""``initializer_range``: BERT's, and one near to what these widths want."""

BETAS_2 = (0.98, 0.999)
"""RoBERTa's second beta, and that of every library."""


@dataclass(frozen=True, order=True)
class Setting:
    """What the grid varies of the peer's training."""

    deviation: float
    beta_2: float
    rate: float

    def __str__(self) -> str:
        return f"std {self.deviation:g}, beta2 {self.beta_2:g}, rate {self.rate:g}"


@dataclass(frozen=True)
class PeerArm:
    """Transformers' Trainer with a setting of the grid."""

    setting: Setting
    minutes: float
    seed: int

    @property
    def name(self) -> str:
        """A name that is also a folder's."""
        numbers = (f"{key}-{value:g}" for key, value in asdict(self.setting).items())
        return "_".join(("trainer", *numbers, f"{self.minutes:g}m", f"seed-{self.seed}"))


@dataclass(frozen=True)
class OurArm:
    """``bertwright pretrain`` with a recipe."""

    recipe: str
    minutes: float
    seed: int

    @property
    def name(self) -> str:
        """A name that is also a folder's; another one when the recipe comes to say otherwise."""
        recipe = Recipe.load(self.recipe)
        digest = sha256(recipe.as_yaml().encode()).hexdigest()[:8]
        return f"bertwright_{recipe.name}-{digest}_{self.minutes:g}m_seed-{self.seed}"


Arm = PeerArm | OurArm


@dataclass(frozen=True)
class Plan:
    """The whole comparison: a grid of the peer's settings, its best one, and ours.

    ``grid_minutes`` may be fewer than ``minutes``, so that the grid takes less long.
    """

    size: str
    recipe: str
    minutes: float
    grid_minutes: float
    seeds: int
    rates: tuple[float, ...]

    @property
    def grid(self) -> list[PeerArm]:
        """Every setting of the grid, from the first seed."""
        settings = [Setting(*values) for values in product(DEVIATIONS, BETAS_2, self.rates)]
        return [PeerArm(setting, self.grid_minutes, seed=0) for setting in settings]

    def theirs(self, setting: Setting) -> list[PeerArm]:
        """One setting from every seed."""
        return [PeerArm(setting, self.minutes, seed) for seed in range(self.seeds)]

    @property
    def ours(self) -> list[OurArm]:
        """Our recipe from every seed."""
        return [OurArm(self.recipe, self.minutes, seed) for seed in range(self.seeds)]
