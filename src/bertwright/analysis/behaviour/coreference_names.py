"""Whether the antecedent of a mention depends on a name (Balasubramanian et al. 2020)."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from bertwright.analysis.behaviour.name_substitution import (
    CHANGED_AT_LEAST_ONCE,
    NAME_MINUS_NOUN,
    OTHER_CASE,
    OTHER_NAME,
    OTHER_NOUN,
    NameReplacement,
)
from bertwright.analysis.behaviour.word_substitution import (
    COMMON_NOUNS,
    PROPER_NAMES,
    WordClasses,
    WordSubstitution,
    find_substitutions,
)
from bertwright.analysis.core.activations import activation_batches
from bertwright.analysis.core.analysis import AnalysisInput
from bertwright.analysis.core.claims import Claim
from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.result import AnalysisResult, BaselineValue, Findings
from bertwright.analysis.core.texts import AnalysedText, encode_sentences
from bertwright.analysis.syntax.coreference import (
    MAX_LENGTH,
    Coreference,
    best_head,
    coreference_scores,
    encode_complete_stories,
)
from bertwright.analysis.syntax.stories import CoreferenceStory, sample_stories
from bertwright.core.rng import stream_key
from bertwright.core.significance import split_halves

CORRECT_ANTECEDENT = "correct antecedents, before"


class CoreferenceNames(NameReplacement):
    """How often the antecedent of a mention changes when a name is replaced by another one.

    The texts are those of the analysis ``coreference``, ``num_stories`` for each kind of the last
    mention, except stories that use two names for one person. The predicted antecedent is the
    earlier mention to which the best head attends most. The head is selected on half of the
    stories; names are replaced in the other half. The common nouns that are replaced in comparison
    are no mentions. The method is that of :class:`NameReplacement`.
    """

    kind: Literal["coreference-names"] = "coreference-names"
    num_stories: int = Field(default=100, ge=20)
    title = "Does the antecedent of a mention depend on a name that could be any other?"
    taps = Coreference.taps
    claims = (
        Claim(
            "most antecedents change with nothing but a name, for at least one name",
            "85 % of sentences",
            f"{CHANGED_AT_LEAST_ONCE}{OTHER_NAME}",
            0.5,
            "half",
        ),
        Claim(
            "another name changes an antecedent less often than another common noun",
            "not measured: names should not matter",
            NAME_MINUS_NOUN,
            direction="below",
            is_optional=True,
        ),
    )

    def not_applicable(self, inputs: AnalysisInput) -> str | None:
        if 2 * len(self.sample_stories(inputs)[0]) < len(self._stories(inputs.seed)):
            return "its maximum length is too short for most of the stories"
        return super().not_applicable(inputs)

    def run(self, inputs: AnalysisInput) -> AnalysisResult:
        stories, texts = self.sample_stories(inputs)
        train, test = split_halves(len(stories), inputs.seed)
        scores = coreference_scores(inputs.model, texts, stories)
        head = best_head(scores[train])
        stories, texts = [stories[n] for n in test], [texts[n] for n in test]
        inputs = replace(inputs, texts=texts)
        mentions = {story.words: {m.word_index for m in story.mentions} for story in stories}

        def find(classes: WordClasses, are_mentions: bool) -> list[WordSubstitution]:
            def words(text: AnalysedText) -> list[str]:
                positions = mentions[text.words]
                return [w for n, w in enumerate(text.words) if (n in positions) is are_mentions]

            items = find_substitutions(texts, classes, words, self.num_alternatives, inputs.seed)
            return [item for item in items if is_complete(inputs.model, stories, item)]

        names = find(PROPER_NAMES, are_mentions=True)
        substitutions = {
            OTHER_NAME: names,
            OTHER_NOUN: find(COMMON_NOUNS, are_mentions=False),
            OTHER_CASE: [name.with_case_variants() for name in names],
        }
        findings = Findings(inputs.seed)
        nearest = float(np.mean([story.is_coreferent[-1] for story in stories]))
        findings.add_ratio(
            CORRECT_ANTECEDENT,
            scores[(test, *head)],
            layer=head[0],
            head=head[1],
            baseline=BaselineValue("nearest mention", nearest),
        )
        changes = partial(antecedent_changes, inputs.model, stories, head)
        return AnalysisResult(findings, self.add_findings(findings, inputs, substitutions, changes))

    def sample_stories(
        self, inputs: AnalysisInput
    ) -> tuple[list[CoreferenceStory], list[AnalysedText]]:
        """Sample and encode stories of single names that the model does not need to truncate."""
        return encode_complete_stories(inputs.model, self._stories(inputs.seed))

    def _stories(self, seed: int) -> list[CoreferenceStory]:
        generator = np.random.default_rng(stream_key(seed, "coreference names"))
        stories = sample_stories(self.num_stories, generator)
        return [story for story in stories if has_single_names(story)]


def has_single_names(story: CoreferenceStory) -> bool:
    """Return whether no person is mentioned by two different names."""
    names = {(m.person_index, m.word) for m in story.mentions if m.word[0].isupper()}
    return len(names) == len({person for person, _ in names})


def replaced_words(
    stories: Sequence[CoreferenceStory], item: WordSubstitution
) -> list[tuple[str, ...]]:
    """Return the words of a story after each replacement."""
    return [tuple(words) for (words,) in item.apply([[*stories[item.text_index].words]])]


def is_complete(
    model: AnalysedModel, stories: Sequence[CoreferenceStory], item: WordSubstitution
) -> bool:
    """Return whether no replacement makes a story too long for the model."""
    texts = encode_sentences(model, replaced_words(stories, item), MAX_LENGTH)
    return not any(text.is_truncated for text in texts)


def antecedent_changes(
    model: AnalysedModel,
    stories: Sequence[CoreferenceStory],
    head: tuple[int, int],
    substitutions: Sequence[WordSubstitution],
) -> list[NDArray[np.bool_]]:
    """Return which replacements in each substitution change the predicted antecedent."""
    originals = [stories[item.text_index] for item in substitutions]
    before = predicted_antecedents(model, [story.words for story in originals], originals, head)
    replaced = [replaced_words(stories, item) for item in substitutions]
    repeated = [story for story, texts in zip(originals, replaced, strict=True) for _ in texts]
    words = [text for texts in replaced for text in texts]
    after = predicted_antecedents(model, words, repeated, head)
    ends = np.cumsum([len(texts) for texts in replaced])[:-1]
    return [
        antecedents != original
        for antecedents, original in zip(np.split(after, ends), before, strict=True)
    ]


def predicted_antecedents(
    model: AnalysedModel,
    sentences: Sequence[Sequence[str]],
    stories: Sequence[CoreferenceStory],
    head: tuple[int, int],
) -> NDArray[np.int64]:
    """Return the index of the earlier mention to which a head attends most, (N,).

    ``stories`` hold the positions of the mentions in the sentences. A tie goes to the first.
    """
    layer, number = head
    texts = encode_sentences(model, [tuple(words) for words in sentences], MAX_LENGTH)
    indices = np.zeros(len(texts), np.int64)
    for batch in activation_batches(model, texts, [f"blocks.{layer}.attention.weights"]):
        weights = batch.attention(layer)[:, number : number + 1]
        for index, text_index in enumerate(batch.text_indices):
            story = stories[text_index]
            between = batch.word_attention(index, weights[index])[0]
            antecedents = [mention.word_index for mention in story.antecedents]
            indices[text_index] = int(between[story.anaphor.word_index, antecedents].argmax())
    return indices
