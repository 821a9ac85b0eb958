"""Whether every analysis finds what was planted, and what a toy model has learned."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.result import read_result
from bertwright.analysis.core.runner import run_analyses
from bertwright.analysis.core.texts import encode_texts
from bertwright.tasks.formats.examples import Example
from experiments.analyses.expectations import LEARNED_CHECKS, PLANTED_CHECKS
from experiments.analyses.grammar import sample_texts, sample_trees
from experiments.analyses.toy import (
    fine_tune_toy,
    reverse_words,
    train_toy_encoder,
    train_toy_translator,
    train_toy_writer,
)
from experiments.single_thread import single_thread

TRAINING_STEPS, QUICK_TRAINING_STEPS = 1200, 100
"""Training steps of the toy; after few of them its knowledge is not checked."""

MAX_SECONDS = 120.0
"""Limit for one analysis of the toy."""


@dataclass(frozen=True)
class AnalysisCheck:
    """The outcome of an analysis, with its failures."""

    survey_id: str
    name: str
    seconds: float
    num_expectations: int
    failures: Sequence[str]

    @property
    def ok(self) -> bool:
        """True without failures."""
        return not self.failures

    def as_dict(self) -> dict[str, Any]:
        """Return JSON-compatible data."""
        data = {"id": self.survey_id, "name": self.name, "ok": self.ok, "seconds": self.seconds}
        return data if self.ok else {**data, "failures": list(self.failures)}

    def __str__(self) -> str:
        outcome = f"{self.num_expectations} expectations hold"
        if not self.ok:
            outcome = f"FAILED: {'; '.join(self.failures)}"
        return f"{self.survey_id:>4}  {self.name:22} {self.seconds:6.1f} s  {outcome}"


def check_analyses(
    analyses: Sequence[Analysis], quick: bool, log: Callable[[str], None]
) -> Iterator[AnalysisCheck]:
    """Train the toy, then check every analysis."""
    with TemporaryDirectory() as folder:
        start = time.monotonic()
        inputs = toy_inputs(Path(folder), QUICK_TRAINING_STEPS if quick else TRAINING_STEPS)
        log(f"a toy model was trained: {time.monotonic() - start:.0f} s")
        for analysis in analyses:
            with single_thread():
                check = check_analysis(analysis, inputs, quick, Path(folder))
            yield check


def toy_inputs(folder: Path, steps: int) -> list[AnalysisInput]:
    """Return inputs of toy models: an encoder, fine-tuned or not, a translator and a writer."""
    toy = train_toy_encoder(folder, steps)
    sentences = sample_trees(60, seed=1)
    long = [
        Example(" ".join(word for tree in sentences[n : n + 12] for word in tree.words))
        for n in range(0, 60, 12)
    ]
    fine_tuned = AnalysedModel("tuned toy", fine_tune_toy(toy))
    translator = train_toy_translator(folder, steps)
    pairs = [Example(text, reverse_words(text)) for text in sample_texts(24, seed=1)]
    writer, data = train_toy_writer(folder, QUICK_TRAINING_STEPS)
    return [
        AnalysisInput(toy, encode_texts(toy, sentences), cache_folder=folder / "states"),
        AnalysisInput(toy, encode_texts(toy, long)),
        AnalysisInput(
            fine_tuned,
            encode_texts(fine_tuned, sentences),
            cache_folder=folder / "states",
            other_model=toy,
        ),
        AnalysisInput(translator, encode_texts(translator, pairs)),
        AnalysisInput(writer, encode_texts(writer, long), training_data=data),
    ]


def check_analysis(
    analysis: Analysis, candidate_inputs: Sequence[AnalysisInput], quick: bool, folder: Path
) -> AnalysisCheck:
    """Check an analysis on the first inputs to which it applies, then on what is planted for it."""
    kind, start, failures = analysis.kind_name(), time.monotonic(), list[str]()
    inputs = next((one for one in candidate_inputs if analysis.not_applicable(one) is None), None)
    expected = [] if kind not in PLANTED_CHECKS else list(PLANTED_CHECKS[kind]())
    planted_seconds = time.monotonic() - start
    if inputs is None:
        failures.append(
            f"not applicable to the toy: {analysis.not_applicable(candidate_inputs[0])}"
        )
    else:
        run_analyses(inputs, [analysis], folder / "results", lambda line: None)
        stored = read_result(folder / "results", kind)
        if not all(np.isfinite(finding["value"]) for finding in stored.findings):
            failures.append("a finding is not finite")
        if kind in LEARNED_CHECKS and not quick:
            expected += LEARNED_CHECKS[kind](stored)
    seconds = time.monotonic() - start
    if seconds - planted_seconds > MAX_SECONDS:
        failures.append(f"took {seconds - planted_seconds:.0f} s on the toy")
    failures += [str(value) for value in expected if not value.is_met]
    return AnalysisCheck(analysis.survey_id, kind, round(seconds, 1), len(expected), failures)
