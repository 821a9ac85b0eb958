"""Heads that attend from a mention to its antecedent (Clark et al. 2019, section 4.3)."""

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from bertwright.analysis.core.activations import activation_batches
from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.claims import Claim
from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.plots import FindingBars, HeatMap
from bertwright.analysis.core.result import (
    AnalysisResult,
    BaselineValue,
    Findings,
    adjust_p_values,
)
from bertwright.analysis.core.texts import AnalysedText, encode_sentences
from bertwright.analysis.syntax.stories import (
    MENTION_KINDS,
    CoreferenceStory,
    Mention,
    sample_stories,
)
from bertwright.core.rng import stream_key
from bertwright.core.significance import (
    FloatArray,
    sign_flip_test,
    split_halves,
)

MAX_LENGTH = 512
"""Maximum sequence length, so large that only the model's own limit truncates stories."""

RESOLVERS = ("best head", "nearest mention", "same word", "rule-based", "untrained")
REPORTED_KINDS = ("all", *MENTION_KINDS)
"""Kinds of mentions that are reported separately."""


class Coreference(Analysis):
    """How often the best head attends from a mention to an earlier one of the same person.

    In short stories about two or three people, one of them is mentioned again by a pronoun, name or
    noun. A head is correct if, of all earlier mentions, it attends most to one of the same person;
    ties count in part. The best head is selected on half of the stories and tested on the other
    half, overall and by kind. Baselines are the nearest mention, the nearest same word, a rule (the
    same word, else the nearest with matching gender and number), and the best head with random
    weights. Stories are sampled from a small grammar, ``num_stories`` of each kind.
    """

    kind: Literal["coreference"] = "coreference"
    num_stories: int = Field(default=200, ge=20)
    survey_id = "B8"
    title = "Do heads attend from a mention to an earlier mention of the same person?"
    source = "Clark et al. 2019"
    taps = ("blocks.*.attention.weights",)
    claims = (
        Claim(
            "a head finds an earlier mention more often than the nearest mention does",
            "65 % and 27 % in BERT-base, on CoNLL-2012",
            "best head minus nearest mention, all",
        ),
        Claim(
            "it finds one more often than the same word does",
            "65 % and 52 %",
            "best head minus same word, all",
        ),
        Claim(
            "it finds one less often than a rule of word, gender and number",
            "65 % and 69 %",
            "best head minus rule-based, all",
            direction="below",
        ),
    )
    plots = (
        FindingBars(
            "fraction whose earlier mention is found", tuple(f"{name}, all" for name in RESOLVERS)
        ),
        HeatMap("fraction, all", lambda r: r.arrays["trained"], (None, None)),
    )

    def not_applicable(self, inputs: AnalysisInput) -> str | None:
        if 2 * len(self.sample_stories(inputs)[0]) < len(MENTION_KINDS) * self.num_stories:
            return "its maximum length is too short for most of the stories"
        return super().not_applicable(inputs)

    def run(self, inputs: AnalysisInput) -> AnalysisResult:
        stories, texts = self.sample_stories(inputs)
        train, test = split_halves(len(stories), inputs.seed)
        trained, untrained = (
            coreference_scores(model, texts, stories)
            for model in (inputs.model, inputs.model.with_random_weights(inputs.seed))
        )
        (layer, head), untrained_head = (best_head(s[train]) for s in (trained, untrained))
        others = {
            name: np.array([s.is_coreferent[resolve(s, sieves)] for s in stories], np.float64)
            for name, sieves in RESOLUTION_RULES.items()
        } | {"untrained": untrained[:, *untrained_head]}
        findings, differences = Findings(inputs.seed), Findings(inputs.seed)
        for kind in REPORTED_KINDS:
            indices = test[[kind in ("all", stories[n].kind) for n in test]]
            scores = trained[indices, layer, head]
            nearest = float(others["nearest mention"][indices].mean())
            baseline = BaselineValue("nearest mention", nearest)
            findings.add_ratio(
                f"best head, {kind}", scores, layer=layer, head=head, baseline=baseline
            )
            for name, values in others.items():
                other = values[indices]
                findings.add_ratio(f"{name}, {kind}", other)
                differences.add_difference(
                    f"best head minus {name}, {kind}",
                    scores,
                    other,
                    p_value=sign_flip_test(scores - other, seed=inputs.seed),
                )
        findings += adjust_p_values(differences)
        arrays = {"trained": trained.mean(0), "untrained": untrained.mean(0)}
        return AnalysisResult(findings, arrays)

    def sample_stories(
        self, inputs: AnalysisInput
    ) -> tuple[list[CoreferenceStory], list[AnalysedText]]:
        """Sample and encode stories that the model does not need to truncate."""
        generator = np.random.default_rng(stream_key(inputs.seed, "coreference"))
        return encode_complete_stories(inputs.model, sample_stories(self.num_stories, generator))


def encode_complete_stories(
    model: AnalysedModel, stories: Sequence[CoreferenceStory]
) -> tuple[list[CoreferenceStory], list[AnalysedText]]:
    """Encode stories and return those that the model does not need to truncate."""
    texts = encode_sentences(model, [story.words for story in stories], MAX_LENGTH)
    complete = [n for n, text in enumerate(texts) if not text.is_truncated]
    return [stories[n] for n in complete], [texts[n] for n in complete]


def coreference_scores(
    model: AnalysedModel, texts: Sequence[AnalysedText], stories: Sequence[CoreferenceStory]
) -> FloatArray:
    """Return how far each head is correct in each story, 0 to 1, (N, layers, heads)."""
    scores = np.zeros((len(stories), model.num_layers, model.num_heads))
    for batch in activation_batches(model, texts, Coreference.taps):
        for layer in range(model.num_layers):
            weights = batch.attention(layer)
            for index, number in enumerate(batch.text_indices):
                story = stories[number]
                antecedents = [mention.word_index for mention in story.antecedents]
                between = batch.word_attention(index, weights[index]).cpu().numpy()
                attention = between[:, story.anaphor.word_index, antecedents]
                is_most = attention == attention.max(1, keepdims=True)
                correct = (is_most & story.is_coreferent).sum(1)
                scores[number, layer] = correct / is_most.sum(1)
    return scores


def best_head(scores: FloatArray) -> tuple[int, int]:
    """Return the layer and head with the highest mean of scores (N, layers, heads)."""
    layer, head = np.unravel_index(scores.mean(0).argmax(), scores.shape[1:])
    return int(layer), int(head)


def is_same_word(antecedent: Mention, anaphor: Mention) -> bool:
    """Return True if both mentions are the same word."""
    return antecedent.word == anaphor.word


def is_compatible(antecedent: Mention, anaphor: Mention) -> bool:
    """Return True if gender and number allow both mentions to be the same person."""
    forms = {antecedent.form, anaphor.form}
    return len(forms) == 1 or ("one" in forms and "several" not in forms)


Sieve = Callable[[Mention, Mention], bool]

RESOLUTION_RULES: dict[str, tuple[Sieve, ...]] = {
    "nearest mention": (),
    "same word": (is_same_word,),
    "rule-based": (is_same_word, is_compatible),
}
"""Sieves by rule. The antecedent is the nearest that passes the first sieve passed by any mention
(Lee et al. 2011); the nearest of all if none passes."""


def resolve(story: CoreferenceStory, sieves: Sequence[Sieve]) -> int:
    """Return the index of the antecedent that the sieves select."""
    for sieve in sieves:
        passed = [n for n, mention in enumerate(story.antecedents) if sieve(mention, story.anaphor)]
        if passed:
            return passed[-1]
    return len(story.antecedents) - 1
