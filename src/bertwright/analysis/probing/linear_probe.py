"""Linear probes for parts of speech, with control tasks (Hewitt and Liang 2019)."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.claims import Claim
from bertwright.analysis.core.plots import LayerCurves
from bertwright.analysis.core.result import AnalysisResult, Findings
from bertwright.analysis.core.word_states import WORD_STATE_TAPS
from bertwright.analysis.probing.layer_probe import ProbeWords, missing_tags, part_of_speech_tags
from bertwright.core.rng import stream_key

NUM_CONTROLS = 5
"""Number of sets of control tags: some are easier to memorise than others."""


LAYERS: tuple[Literal["first", "middle", "last"], ...] = ("first", "middle", "last")


class LinearProbe(Analysis):
    """The part-of-speech accuracy of a linear probe, compared with its accuracy on control tags.

    Each distinct word has a random control tag in every context; results are averaged over five
    sets of control tags. Probes are trained on half of the sentences and tested on the other half.
    The difference, selectivity, is what hidden states add to a memorised vocabulary.
    ``inverse_regularisation`` is C of the logistic regression.
    """

    kind: Literal["linear-probe"] = "linear-probe"
    inverse_regularisation: float = Field(default=1.0, gt=0)
    survey_id = "B22"
    title = "Which layers encode parts of speech, and how much does the probe memorise?"
    source = "Hewitt and Liang 2019"
    taps = WORD_STATE_TAPS
    requires = (missing_tags,)
    claims = tuple(
        Claim(
            "hidden states tell more than memorised words, in layer {layer}",
            "26.0 points for a linear probe of ELMo's first layer",
            "selectivity",
            baseline_name="none",
            layer=layer,
        )
        for layer in LAYERS
    )
    plots = (
        LayerCurves(
            "accuracy",
            lambda r: dict(zip(("part of speech", "control"), r.arrays["scores"].T, strict=True)),
        ),
    )

    def run(self, inputs: AnalysisInput) -> AnalysisResult:
        words, tags = ProbeWords.from_inputs(inputs), part_of_speech_tags(inputs)
        controls = [
            control_tags(words.word_states.words, tags, inputs.seed, draw)
            for draw in range(NUM_CONTROLS)
        ]
        baseline = words.majority_baseline(tags)
        findings = Findings(inputs.seed, includes_embeddings=True)
        scores = np.zeros((words.word_states.num_layers, 2))
        for layer in range(words.word_states.num_layers):
            features = words.features(layer)
            correct, *on_controls = (
                words.tag_scores(features, target, self.inverse_regularisation)
                for target in (tags, *controls)
            )
            values = correct, np.mean(on_controls, axis=0)
            sums = [words.sums_by_text(v) for v in values]
            scores[layer] = [v.mean() for v in values]
            findings.add_ratio("accuracy", *sums[0], layer=layer, baseline=baseline)
            findings.add_ratio("control accuracy", *sums[1], layer=layer)
            findings.add_difference("selectivity", *sums, layer=layer)
        return AnalysisResult(findings, {"scores": scores})


def control_tags(
    words: Sequence[str], tags: NDArray[np.str_], seed: int, control_index: int = 0
) -> NDArray[np.str_]:
    """Return a random tag for every distinct word, distributed as ``tags`` (section 2)."""
    kinds = {word: number for number, word in enumerate(dict.fromkeys(words))}
    generator = np.random.default_rng(stream_key(seed, "control tags", control_index))
    drawn = generator.choice(tags, len(kinds))
    return drawn[[kinds[word] for word in words]]
