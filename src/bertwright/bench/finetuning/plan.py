"""What is compared: tasks with their data, and the settings that both sides are given."""

from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from bertwright.axes import Settings, explain
from bertwright.bench.stated_data import StatedData
from bertwright.model.text_model import TextModel
from bertwright.recipes.loading import read_yaml
from bertwright.tasks.encoding import RowMaker
from bertwright.tasks.parts import Part


class Compared(StatedData):
    """One task with its data.

    Attributes:
        timed: how many steps each side takes in its turn.
        epochs, rate, batch, length: as of fine-tuning; the rate is of both sides.
    """

    timed: int = Field(default=50, ge=1)
    epochs: int = Field(default=3, ge=1)
    rate: float = Field(default=5e-5, gt=0)
    batch: int = Field(default=32, ge=1)
    length: int = Field(default=128, ge=8)

    def part(self, model: TextModel) -> Part:
        """The examples as rows of this encoder."""
        return Part.of(*self.examples().parts(), self.maker(model))

    def maker(self, model: TextModel) -> RowMaker:
        """How this encoder takes texts."""
        longest = model.model.encoder.longest
        return RowMaker.of(model.model.recipe, model.tokenizer, longest, self.length)


class Plan(Settings):
    """The comparison: an encoder in a Hugging Face folder (None: that of the package with
    all-MiniLM-L6-v2), the tasks, and how many seeds either side has."""

    encoder: Path | None = None
    seeds: int = Field(default=3, ge=2)
    warmup: float = 0.1
    decay: float = 0.01
    dropout: float = 0.1
    tasks: dict[str, Compared]

    @staticmethod
    def load(file: Path) -> "Plan":
        """Read a plan; UserError that names the key for what cannot be."""
        stated: dict[str, Any] = read_yaml(file)
        try:
            return Plan.model_validate(stated)
        except ValidationError as error:
            raise explain(error, str(file)) from error
