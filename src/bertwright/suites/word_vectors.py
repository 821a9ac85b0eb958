"""The baseline of word vectors: skip-gram, trained once on running text and kept by its content."""

import hashlib
import json
from pathlib import Path

from pydantic import Field, field_validator

from bertwright.core.config import Settings
from bertwright.core.errors import UserError
from bertwright.core.files import content_hash
from bertwright.data.preparation import prepare
from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.data.vocabulary_training import train_tokenizer_on_files
from bertwright.models.saving import is_model_folder
from bertwright.recipes import Recipe
from bertwright.suites.tasks.suite_task import require_data
from bertwright.training.pretraining.pretrain import pretrain

RECIPE = "word2vec"


class WordVectorTraining(Settings):
    """How word vectors are trained.

    Attributes:
        text: files below the data folder.
        overrides: changes of the recipe ``word2vec``.
    """

    text: tuple[str, ...] = Field(min_length=1)
    overrides: tuple[str, ...] = ()

    @field_validator("overrides")
    @classmethod
    def _require_valid_overrides(cls, overrides: tuple[str, ...]) -> tuple[str, ...]:
        try:
            Recipe.load(RECIPE, *overrides)
        except UserError as error:
            raise ValueError(str(error)) from None
        return overrides

    def train(self, data: Path, folder: Path) -> Path:
        """Return the model folder of the vectors: trained, continued, or found in ``folder``.

        Errors: UserError for a missing file.
        """
        files = [require_data(data, name) for name in self.text]
        recipe = Recipe.load(RECIPE, *self.overrides)
        inputs = json.dumps([content_hash(*files), recipe.model_dump_json()])
        work = folder / f"word-vectors-{hashlib.sha256(inputs.encode()).hexdigest()[:16]}"
        if is_model_folder(work / "model"):
            return work / "model"
        if not (work / "tokenizer").is_dir():
            train_tokenizer_on_files(files, work / "tokenizer", recipe.text.tokenizer)
        if not (work / "data").is_dir():
            prepare(files, work / "data", Tokenizer.load(work / "tokenizer"), heldout=0.0)
        pretrain(recipe, work / "data", work / "model", resume=True, quiet=True)
        return work / "model"
