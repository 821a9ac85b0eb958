"""Whether a prediction depends on an exchangeable name (Balasubramanian et al. 2020)."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from bertwright.analysis.behaviour.classification import split_parts
from bertwright.analysis.behaviour.word_substitution import (
    COMMON_NOUNS,
    PROPER_NAMES,
    WordSubstitution,
    common_nouns,
    find_substitutions,
    prediction_changes,
    proper_nouns,
)
from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.claims import Claim
from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.plots import FindingBars, LayerCurves
from bertwright.analysis.core.requirements import missing_classes
from bertwright.analysis.core.result import (
    AnalysisFinding,
    AnalysisResult,
    BaselineValue,
    Findings,
)
from bertwright.core.significance import FloatArray

OTHER_NAME, OTHER_NOUN, OTHER_CASE = "another name", "another common noun", "other letters"
"""Kinds of substitution: a name, a common noun, or the case of a name."""

CHANGED_FRACTION, CHANGED_AT_LEAST_ONCE = "changed predictions, ", "changed at least once, "
"""Whether the prediction changes: averaged over substitutions, and by any of a text's."""

NAME_MINUS_NOUN = "another name minus another common noun"


class NameReplacement(Analysis):
    """A base class of analyses of predictions before and after names are replaced.

    The first name of a woman, man, city or country in a text is replaced everywhere by
    ``num_alternatives`` other names of its type. The comparisons are replacing a common noun, and
    writing the same name in another case. Results are also reported for names of one token and of
    several, and for new names that occur in the texts and that do not.
    """

    num_alternatives: int = Field(default=10, ge=1)
    survey_id = "B33"
    source = "Balasubramanian et al. 2020"
    plots = (
        LayerCurves(
            "fraction of texts whose prediction changes at least once",
            lambda r: {name: curve.mean(0) for name, curve in r.arrays.items()},
            False,
            "number of substitutions",
        ),
        FindingBars("fraction of substitutions that change the prediction", CHANGED_FRACTION),
    )

    def add_findings(
        self,
        findings: Findings,
        inputs: AnalysisInput,
        substitutions: Mapping[str, Sequence[WordSubstitution]],
        changes: Callable[[Sequence[WordSubstitution]], Sequence[NDArray[np.bool_]]],
    ) -> dict[str, FloatArray]:
        """Add the findings of substitutions by kind; return whether predictions have changed.

        ``changes`` returns which replacements in each substitution change the prediction. The
        result is (texts, n) by kind: whether any of the first n replacements does.
        """
        effects = {
            kind: SubstitutionEffects(items, changes(items))
            for kind, items in substitutions.items()
            if items
        }
        findings += [f for kind, e in effects.items() for f in e.findings(kind, findings.seed)]
        findings += findings_by_name_type(inputs, effects[OTHER_NAME])
        names, nouns = substitutions[OTHER_NAME], substitutions[OTHER_NOUN]
        both = {item.text_index for item in names} & {item.text_index for item in nouns}
        if both:
            counts = (effects[kind].counts_in(both) for kind in (OTHER_NAME, OTHER_NOUN))
            findings.add_difference(NAME_MINUS_NOUN, *counts)
        return {kind: effect.cumulative_changes() for kind, effect in effects.items()}


class NameSubstitution(NameReplacement):
    """How often the predicted class changes when a name is replaced by another one.

    In sentences with trees a name must be tagged as a proper noun. The method is that of
    :class:`NameReplacement`.
    """

    kind: Literal["names"] = "names"
    title = "Does the prediction depend on a name that could be any other?"
    requires = (missing_classes,)
    claims = (
        Claim(
            "some predictions change with nothing but a name",
            "85 % of sentences in coreference, for at least one name",
            f"{CHANGED_AT_LEAST_ONCE}{OTHER_NAME}",
            None,
        ),
        Claim(
            "another name changes a prediction less often than another common noun",
            "not measured: names should not matter",
            NAME_MINUS_NOUN,
            direction="below",
            is_optional=True,
        ),
    )

    def not_applicable(self, inputs: AnalysisInput) -> str | None:
        missing = None if self._name_substitutions(inputs) else "no text has a known name"
        return super().not_applicable(inputs) or missing

    def run(self, inputs: AnalysisInput) -> AnalysisResult:
        names, limit, seed = self._name_substitutions(inputs), self.num_alternatives, inputs.seed
        text_parts = [split_parts(text) for text in inputs.texts]
        substitutions = {
            OTHER_NAME: names,
            OTHER_NOUN: find_substitutions(inputs.texts, COMMON_NOUNS, common_nouns, limit, seed),
            OTHER_CASE: [name.with_case_variants() for name in names],
        }
        findings = Findings(seed)
        changes = partial(prediction_changes, inputs.model, text_parts)
        arrays = self.add_findings(findings, inputs, substitutions, changes)
        return AnalysisResult(findings, arrays)

    def _name_substitutions(self, inputs: AnalysisInput) -> list[WordSubstitution]:
        return find_substitutions(
            inputs.texts, PROPER_NAMES, proper_nouns, self.num_alternatives, inputs.seed
        )


@dataclass(frozen=True)
class SubstitutionEffects:
    """Substitutions, and which replacements in each change the prediction."""

    substitutions: Sequence[WordSubstitution]
    has_changed: Sequence[NDArray[np.bool_]]

    def findings(self, name: str, seed: int) -> list[AnalysisFinding]:
        """Return the findings on how often the prediction changes."""
        findings, baseline = Findings(seed), BaselineValue("a model that ignores it", 0.0)
        findings.add_ratio(f"{CHANGED_FRACTION}{name}", *self.counts_by_text(), baseline=baseline)
        changed_once = self.cumulative_changes()[:, -1]
        findings.add_ratio(f"{CHANGED_AT_LEAST_ONCE}{name}", changed_once, baseline=baseline)
        return findings

    def counts_in(self, texts: Collection[int]) -> tuple[FloatArray, FloatArray]:
        """Return the counts of some texts."""
        is_included = [item.text_index in texts for item in self.substitutions]
        changes, totals = self.counts_by_text()
        return changes[is_included], totals[is_included]

    def counts_by_text(
        self, is_counted: Callable[[str], bool] = lambda _: True
    ) -> tuple[FloatArray, FloatArray]:
        """Return the number of changes and of replacements for each text."""
        masks = [
            np.array([is_counted(replacement) for replacement in item.replacements])
            for item in self.substitutions
        ]
        changes = [(mask & c).sum() for mask, c in zip(masks, self.has_changed, strict=True)]
        return np.array(changes, np.float64), np.array([mask.sum() for mask in masks], np.float64)

    def cumulative_changes(self) -> FloatArray:
        """Return whether any of the first n replacements changes the prediction, (texts, n)."""
        changes = np.zeros((len(self.has_changed), max(map(len, self.has_changed))))
        for row, has_changed in zip(changes, self.has_changed, strict=True):
            row[: len(has_changed)] = has_changed
        return np.maximum.accumulate(changes, 1)


def findings_by_name_type(
    inputs: AnalysisInput, effects: SubstitutionEffects
) -> list[AnalysisFinding]:
    """Return how often the prediction changes, by the type of the new name."""
    words = {word.lower() for text in inputs.texts for word in text.words}
    name_types: Mapping[str, Callable[[str], bool]] = {
        "name of one token": lambda name: num_word_tokens(inputs.model, name) == 1,
        "name of several tokens": lambda name: num_word_tokens(inputs.model, name) > 1,
        "name that occurs in the texts": lambda name: name.lower() in words,
        "name that occurs in none": lambda name: name.lower() not in words,
    }
    findings = Findings(inputs.seed)
    for name_type, is_counted in name_types.items():
        changes, totals = effects.counts_by_text(is_counted)
        if totals.any():
            findings.add_ratio(f"{CHANGED_FRACTION}{name_type}", changes, totals)
    return findings


def num_word_tokens(model: AnalysedModel, word: str) -> int:
    """Return the number of tokens that a word has within a text."""
    token_ids, starts = model.tokenizer.encode_pretokenized(["a", word])
    return len(token_ids) - starts[1]
