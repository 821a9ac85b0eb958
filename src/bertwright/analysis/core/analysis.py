"""The base classes of analyses, and their inputs."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from matplotlib.figure import Figure

from bertwright.analysis.core.activations import (
    ActivationBatch,
    Measured,
    Measurements,
    collect_measurements,
)
from bertwright.analysis.core.claims import Claim, ClaimResult
from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.plots import Plot
from bertwright.analysis.core.result import AnalysisResult, StoredResult
from bertwright.analysis.core.texts import AnalysedText, SentenceWords, encode_sentences
from bertwright.core.config import Config
from bertwright.data.shards.dataset import Dataset


@dataclass(frozen=True)
class AnalysisInput:
    """A model and texts to analyse.

    Attributes:
        seed: Seed of all random draws.
        cache_folder: Folder that caches hidden states for other analyses; None disables it.
        other_model: Second model, for comparisons.
        training_data: Data on which the model was trained.
    """

    model: AnalysedModel
    texts: Sequence[AnalysedText]
    seed: int = 0
    cache_folder: Path | None = None
    other_model: AnalysedModel | None = None
    training_data: Dataset | None = None

    def untrained(self) -> "AnalysisInput":
        """Return the same inputs, but a model with randomly initialised weights."""
        return replace(self, model=self.model.with_random_weights(self.seed))


Requirement = Callable[[AnalysisInput], str | None]
"""A function that returns why an analysis does not apply to the inputs, or None if it does."""


class Analysis(Config):
    """An analysis of a model on texts, with published claims and a plot.

    Attributes:
        survey_id: Number in the survey.
        group: Name that selects several analyses at once; the default is their package.
        title: Question that the analysis answers.
        source: Publication that it follows.
    """

    survey_id: ClassVar[str]
    group: ClassVar[str]
    title: ClassVar[str]
    source: ClassVar[str]
    taps: ClassVar[tuple[str, ...]] = ()
    """Taps of the activations that it records."""
    requires: ClassVar[tuple[Requirement, ...]] = ()
    """Further requirements, besides these activations."""
    claims: ClassVar[tuple[Claim, ...]] = ()
    """Published claims that it checks."""
    plots: ClassVar[tuple[Plot, ...]] = ()
    """Panels of the figure, in order."""
    compares_models: ClassVar[bool] = False
    """True if the result depends on the second model."""
    uses_training_data: ClassVar[bool] = False
    """True if the result depends on the training data."""

    @classmethod
    def __pydantic_init_subclass__(cls, **settings: Any) -> None:
        super().__pydantic_init_subclass__(**settings)
        if "group" not in vars(cls):
            cls.group = cls.__module__.removeprefix("bertwright.analysis.").split(".")[0]

    def describe(self) -> dict[str, str]:
        """Return the name, number, group, title and source."""
        return {
            "analysis": self.kind_name(),
            "id": self.survey_id,
            "group": self.group,
            "title": self.title,
            "source": self.source,
        }

    def not_applicable(self, inputs: AnalysisInput) -> str | None:
        """Return why the analysis does not apply to the inputs, or None if it does."""
        for requirement in self.requires:
            if (reason := requirement(inputs)) is not None:
                return reason
        sentences = encode_sentences(inputs.model, self.built_in_sentences(inputs.seed))
        if any(text.is_truncated for text in sentences):
            length = inputs.model.encoder.max_length
            return f"its maximum length of {length} is too short for the sentences of this analysis"
        return inputs.model.missing_taps(*self.taps) if self.taps else None

    def built_in_sentences(self, seed: int) -> Sequence[SentenceWords]:
        """Return the built-in sentences of the analysis, which must not be truncated."""
        return ()

    @abstractmethod
    def run(self, inputs: AnalysisInput) -> AnalysisResult:
        """Run the analysis."""

    def check_claims(self, result: StoredResult) -> list[ClaimResult]:
        """Check the published claims against the result."""
        results = (claim.check(result) for claim in self.claims)
        return [claim_result for claim_result in results if claim_result is not None]

    def plot(self, result: StoredResult, figure: Figure) -> None:
        """Plot the result into a figure; by default one panel for each of ``plots``."""
        panels = figure.subplots(1, len(self.plots), squeeze=False)[0]
        for axes, plot in zip(panels, self.plots, strict=True):
            plot.draw(axes, result)


class StreamingAnalysis(Analysis):
    """A base class of analyses that measure activations and share a single pass over the texts."""

    @abstractmethod
    def measure(self, inputs: AnalysisInput, batch: ActivationBatch) -> Measurements:
        """Return values for every text of a batch, by name."""

    @abstractmethod
    def summarise(self, inputs: AnalysisInput, measured: Measured) -> AnalysisResult:
        """Return the result from the values of all texts, by name."""

    def run(self, inputs: AnalysisInput) -> AnalysisResult:
        return run_in_one_pass(inputs, [self])[0]


def run_in_one_pass(
    inputs: AnalysisInput, analyses: Sequence[StreamingAnalysis]
) -> list[AnalysisResult]:
    """Run several analyses in one pass over the texts."""
    collected = collect_measurements(
        inputs.model,
        inputs.texts,
        {tap for analysis in analyses for tap in analysis.taps},
        [partial(analysis.measure, inputs) for analysis in analyses],
    )
    pairs = zip(analyses, collected, strict=True)
    return [analysis.summarise(inputs, measured) for analysis, measured in pairs]
