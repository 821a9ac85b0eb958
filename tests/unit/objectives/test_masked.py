"""Masked language models are evaluated with one masking, whatever they are trained with."""

import pytest

from bertwright.batches.formats import InputFormat
from bertwright.objectives.masked import MaskedLM


@pytest.mark.parametrize(
    ("kind", "fractions"), [("full-sentences", (0.8, 0.1, 0.1)), ("item-history", (1.0, 0.0, 0.0))]
)
def test_texts_are_evaluated_as_in_bert_and_histories_with_masks_only(
    kind: str, fractions: tuple[float, float, float]
) -> None:
    corruption = {"kind": "replace", "mask": 0.5, "random": 0.5, "keep": 0.0}
    objective = MaskedLM.model_validate({"corruption": corruption})
    evaluated = objective.for_evaluation(InputFormat.parse(kind)).corruption
    assert (evaluated.mask, evaluated.random, evaluated.keep) == fractions
