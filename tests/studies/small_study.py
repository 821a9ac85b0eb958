"""A study that runs in a moment."""

from typing import Any

from bertwright.recipes.loading import merged
from bertwright.studies.study import Study

STATED: dict[str, Any] = {
    "name": "small",
    "question": "Does it matter what the first block is told?",
    "corpus": {"kind": "grammar", "documents": 100},
    "tokenizer": {"kind": "wordpiece", "size": 400},
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
    """The study, with other settings merged in."""
    return Study.model_validate(merged(STATED, changes))
