"""Constants of analyses and of pruning that are not settings have the published values."""

from typing import Any

import pytest

from bertwright.analysis.attribution import learned_masks
from bertwright.analysis.behaviour.checklist import suite
from bertwright.analysis.core import prediction_probe
from bertwright.analysis.dynamics import effective_context, head_pruning, relative_context
from bertwright.analysis.heads import learned_gates
from bertwright.analysis.probing import description_length
from bertwright.compression.pruning import weight_pruning_methods
from bertwright.compression.vocabulary import static_embeddings
from bertwright.modules.hard_concrete import HardConcrete

PERCENT = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.25, 12.5, 25, 50, 100)

PUBLISHED: dict[str, tuple[Any, Any]] = {
    "Louizos et al. 2018": (
        weight_pruning_methods.GATE_DISTRIBUTION,
        HardConcrete(temperature=2 / 3, low=-0.1, high=1.1),
    ),
    "Voita et al. 2019, released code": (
        learned_gates.GATE_DISTRIBUTION,
        HardConcrete(temperature=0.33, low=-0.1, high=1.1),
    ),
    "De Cao et al. 2020, released code": (
        learned_masks.GATE_DISTRIBUTION,
        HardConcrete(temperature=0.2, low=-0.2, high=1.0),
    ),
    "Sanh et al. 2020, released code": (weight_pruning_methods.MIN_DENSITY, 0.005),
    "Arora et al. 2017": (static_embeddings.SMOOTHING, 1e-3),
    "Devlin et al. 2019": (prediction_probe.MASKED_FRACTION, 0.15),
    "Dai et al. 2019, fractions of hard targets": (
        effective_context.HARD_FRACTIONS,
        (0.1, 0.5, 1.0),
    ),
    "Dai et al. 2019, relative gain": (relative_context.MIN_RELATIVE_GAIN, 0.01),
    "Ribeiro et al. 2020, released code": (suite.TOLERANCE, 0.1),
    "Prasanna et al. 2020, section 3.2": (
        (head_pruning.PRUNED_FRACTION_PER_STEP, head_pruning.MIN_SCORE_FRACTION),
        (0.1, 0.9),
    ),
    "Voita and Titov 2020, section 2.2": (
        description_length.PORTIONS,
        pytest.approx([percent / 100 for percent in PERCENT]),
    ),
}


@pytest.mark.parametrize("source", PUBLISHED)
def test_constants_are_as_published(source: str) -> None:
    value, published = PUBLISHED[source]
    assert value == published
