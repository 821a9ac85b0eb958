"""The choice of the default recipe: made on one metric of a study, and evaluated on another.

The metrics are those of two halves of the held-out text. The best of many arms on one half is
better there than on new text, because it was chosen for that; the other half shows what it gains.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertwright.core.errors import UserError
from bertwright.core.files import parse_json, read_text
from bertwright.core.statistics import Estimate, estimate
from bertwright.core.verdicts import Verdict, decide
from bertwright.runtime.markdown_report import markdown_table
from bertwright.studies.report import RESULT_FILE, stored_results
from bertwright.studies.study import StudyResults
from bertwright.studies.verdict import has_metric, metric_values

SELECTED_ON, EVALUATED_ON = "first-half.bits_per_byte", "second-half.bits_per_byte"


@dataclass(frozen=True)
class DefaultChoice:
    """The arm with the best mean of ``selected_on``, and all arms in that order.

    A metric is better if it is lower, or higher with ``is_score``.
    """

    results: StudyResults
    selected_on: str
    evaluated_on: str
    is_score: bool = False

    @property
    def arms(self) -> list[str]:
        """The arms with both metrics, the chosen one first.

        Errors: UserError for fewer than two.
        """
        metrics = (self.selected_on, self.evaluated_on)
        arms = [a for a in self.results if all(has_metric(self.results, a, m) for m in metrics)]
        if len(arms) < 2:
            raise UserError(
                f"{len(arms)} of the arms have both {self.selected_on} and {self.evaluated_on}: a "
                f"choice needs two; add the measures to the study"
            )
        return sorted(
            arms, key=lambda a: self.mean(a, self.selected_on).mean, reverse=self.is_score
        )

    def mean(self, arm: str, metric: str) -> Estimate:
        """Return the mean of a metric over the seeds of an arm."""
        return estimate(metric_values(self.results, arm, metric))

    def gain(self, arm: str) -> tuple[Estimate, Verdict]:
        """Return how much better the chosen arm is than another, over paired seeds."""
        sign = 1.0 if self.is_score else -1.0
        best_losses, other = (
            metric_values(self.results, a, self.evaluated_on) for a in (self.arms[0], arm)
        )
        return decide([sign * (c - o) for c, o in zip(best_losses, other, strict=False)])

    def rows(self) -> list[dict[str, object]]:
        """Return a row for every arm, the chosen one first."""
        best, *others = self.arms
        return [
            {"arm": f"**{best}**", **self._means(best)},
            *({"arm": arm, **self._means(arm), **self._comparison(arm)} for arm in others),
        ]

    def columns(self) -> dict[str, str]:
        """Return the heading of each column."""
        return {
            "arm": "arm",
            "selected_on": f"selected on: {self.selected_on}",
            "evaluated_on": f"evaluated on: {self.evaluated_on}",
            "gain": f"{self.arms[0]} is better by",
            "verdict": "verdict",
        }

    def _means(self, arm: str) -> dict[str, object]:
        return {
            "selected_on": str(self.mean(arm, self.selected_on)),
            "evaluated_on": str(self.mean(arm, self.evaluated_on)),
        }

    def _comparison(self, arm: str) -> dict[str, object]:
        gain, verdict = self.gain(arm)
        return {"gain": str(gain), "verdict": verdict.text("seeds")}


def read_result(path: Path) -> Mapping[str, Any]:
    """Read the result of a study from its file or folder.

    Errors: UserError if there is none.
    """
    file = path / RESULT_FILE if path.is_dir() else path
    if not file.is_file():
        raise UserError(f"there is no {file}: run a study with -o {path} first")
    result = parse_json(read_text(file), str(file), "run the study again")
    if not {"study", "arms", "equal", "provenance"} <= result.keys():
        raise UserError(f"{file} is not the result of a study: name a {RESULT_FILE}")
    return result


def choose(
    result: Mapping[str, Any], selected_on: str, evaluated_on: str, is_score: bool
) -> DefaultChoice:
    """Return the choice from a study's result.

    Errors: UserError if both metrics are the same, which would show nothing.
    """
    if selected_on == evaluated_on:
        raise UserError(
            f"--selected-on and --evaluated-on are both {selected_on}: name two metrics"
        )
    return DefaultChoice(stored_results(result), selected_on, evaluated_on, is_score)


def report_lines(result: Mapping[str, Any], choice: DefaultChoice) -> list[str]:
    """Return the choice in Markdown."""
    arms = choice.arms
    seeds = min(len(choice.results[arm]) for arm in arms)
    return [
        f"**{arms[0]}** is chosen from {len(arms)} arms of the study {result['study']['name']}. "
        f"Every arm has had {result['equal']}. Means and 95 % intervals over {seeds} seeds; "
        f"differences are paired.",
        "",
        *markdown_table(choice.columns(), choice.rows()),
    ]
