"""A study that takes a moment to run."""

from typing import Any

from bertwright.recipes.loading import merge
from bertwright.studies.study import Study

SETTINGS: dict[str, Any] = {
    "name": "small",
    "question": "Does the recipe matter?",
    "corpus": {"kind": "grammar", "documents": 100},
    "tokenizer": {"kind": "wordpiece", "vocab_size": 400},
    "changes": {
        "assembly": {"length": 32},
        "encoder": {"width": 32, "mixer": {"head_width": 16}},
        "phases": [{}],
        "batch_tokens": 256,
        "precision": "float32",
        "compile": False,
    },
    "arms": {"one": {"recipe": "bert-tiny"}, "other": {"recipe": "roberta-tiny"}},
    "equal": {"steps": 3},
    "seeds": 2,
    "expected": [{"measure": "held-out.masked_loss", "arm": "one", "below": "other"}],
}


def small_study(**changes: Any) -> Study:
    """Return the study with changed settings."""
    return Study.model_validate(merge(SETTINGS, changes))
