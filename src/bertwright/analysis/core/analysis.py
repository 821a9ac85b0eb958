"""The base classes of analyses, their inputs, and the tables of a report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from matplotlib.figure import Figure

from bertwright.analysis.core.activations import ActivationConsumer, stream_activations
from bertwright.analysis.core.claims import Claim, ClaimResult
from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.plots import Plot
from bertwright.analysis.core.result import AnalysisResult, StoredResult
from bertwright.analysis.core.texts import AnalysedText
from bertwright.core.config import Config


@dataclass(frozen=True)
class AnalysisInput:
    """A model and texts to analyse.

    Attributes:
        seed: Seed of all random draws.
        cache_folder: Folder that caches hidden states for other analyses; None disables it.
        other_model: Second model, for comparisons.
    """

    model: AnalysedModel
    texts: Sequence[AnalysedText]
    seed: int = 0
    cache_folder: Path | None = None
    other_model: AnalysedModel | None = None


@dataclass(frozen=True)
class ReportTable:
    """A table of numbers for a document: heading, columns by key, and rows."""

    heading: str
    columns: Mapping[str, str]
    rows: Sequence[Mapping[str, object]]


class Analysis(Config):
    """An analysis of a model on texts, with its published claims and a plot.

    Attributes:
        survey_id: Number in the survey.
        group: Name that selects several analyses at once.
        title: Question that the analysis answers.
        source: Publication.
    """

    survey_id: ClassVar[str]
    group: ClassVar[str]
    title: ClassVar[str]
    source: ClassVar[str]
    taps: ClassVar[tuple[str, ...]] = ()
    """Activations that it records."""
    claims: ClassVar[tuple[Claim, ...]] = ()
    """Published claims."""
    plots: ClassVar[tuple[Plot, ...]] = ()
    """Panels of the figure."""
    compares_models: ClassVar[bool] = False
    """True if the result depends on the second model."""

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
        """Return why the analysis does not apply to the inputs, or None."""
        return inputs.model.missing_taps(*self.taps) if self.taps else None

    def run(self, inputs: AnalysisInput) -> AnalysisResult:
        """Run the analysis."""
        raise TypeError(f"{type(self).__name__} is a base class, not an analysis")

    def check_claims(self, result: StoredResult) -> list[ClaimResult]:
        """Check the published claims against the result."""
        results = (claim.check(result) for claim in self.claims)
        return [claim_result for claim_result in results if claim_result is not None]

    def tables(self, result: StoredResult) -> list[ReportTable]:
        """Return tables for a document, in addition to the claims."""
        return []

    def plot(self, result: StoredResult, figure: Figure) -> None:
        """Plot the result into a figure, by default one panel for each of ``plots``."""
        panels = figure.subplots(1, len(self.plots), squeeze=False)[0]
        for axes, plot in zip(panels, self.plots, strict=True):
            plot.draw(axes, result)


class StreamingAnalysis(Analysis):
    """A base class of analyses that consume activations and share one pass over the texts."""

    def consumer(self, inputs: AnalysisInput) -> ActivationConsumer:
        """Return the consumer of activations."""
        raise TypeError(f"{type(self).__name__} is a base class, not an analysis")

    def run(self, inputs: AnalysisInput) -> AnalysisResult:
        consumer = self.consumer(inputs)
        stream_activations(inputs.model, inputs.texts, [consumer])
        return consumer.result()
