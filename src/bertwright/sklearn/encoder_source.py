"""The encoder of an estimator: a model folder, or a recipe that is built untrained."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from bertwright.core.config import InferencePrecision
from bertwright.data.vocabulary_training import train_tokenizer
from bertwright.interop.loading import load
from bertwright.models.model import Model
from bertwright.models.text_model import TextModel
from bertwright.recipes import Recipe
from bertwright.recipes.loading import recipe_names

DEFAULT_MODEL = "bert-tiny"
"""The recipe of an estimator without a model: 2 blocks of width 128."""

MAX_VOCAB_SIZE = 8192
"""Maximum number of tokens of the vocabulary of an untrained encoder."""

MIN_VOCAB_SIZE = 256


def resolve_seed(random_state: Any) -> int:
    """Return the seed of a ``random_state``: an integer is the seed, None draws one."""
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


def load_encoder(
    model: str | Path, texts: Iterable[str], seed: int, precision: InferencePrecision | None
) -> TextModel:
    """Return the model of a folder, or the untrained model of a recipe: a name or a YAML file.

    An untrained encoder has random weights, and a vocabulary of the ``texts``: its states are
    random features of words and their order. A folder with the name of a recipe wins.
    """
    is_recipe = Path(model).suffix in (".yaml", ".yml") or str(model) in recipe_names()
    if Path(model).is_dir() or not is_recipe:
        return load(model, precision)
    recipe = Recipe.load(
        str(model), f"seed={seed}", "encoder.initialisation={kind: width-aware}", "pooler=false"
    )
    distinct = dict.fromkeys(texts)
    words = {word for text in distinct for word in text.split()}
    vocab_size = min(max(2 * len(words), MIN_VOCAB_SIZE), MAX_VOCAB_SIZE)
    tokenizer = train_tokenizer(
        distinct, recipe.text.tokenizer.model_copy(update={"vocab_size": vocab_size})
    )
    return TextModel(Model.build(recipe, tokenizer.vocab_size, tokenizer), tokenizer, precision)
