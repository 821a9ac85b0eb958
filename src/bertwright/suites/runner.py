"""Predictions of models and baselines for the tasks of a suite, each computed once.

Predictions are kept by what they depend on: version, task, content of its files, and model. A run
that was killed continues where it stopped, and another model finds the baselines in the folder.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bertwright import __version__
from bertwright.analysis.core.model import AnalysedModel
from bertwright.core.errors import UserError
from bertwright.core.files import read_results, write_text
from bertwright.models.text_model import TextModel
from bertwright.suites.suite import EvaluationSuite
from bertwright.suites.tasks import PreparedTask, SuiteTask

WORD_VECTORS, WORDS_ALONE = "word vectors", "words alone"
"""Names of the baselines."""

Log = Callable[[str], None]


@dataclass(frozen=True)
class SuiteSystem:
    """What a suite evaluates: a model, or a baseline; words alone have no ``model``."""

    name: str
    model: TextModel | None
    is_baseline: bool = False

    @property
    def digest(self) -> str:
        """Digest of all that its predictions depend on."""
        if self.model is None:
            return WORDS_ALONE
        return AnalysedModel(self.name, self.model).model_digest

    def predict(self, task: PreparedTask) -> Sequence[Any]:
        """Return the predictions; UserError if it cannot do the task."""
        if self.model is not None:
            return task.predict(self.model)
        if task.words_method is None:
            raise UserError("words alone say nothing here")
        return task.predict_from_words()


@dataclass(frozen=True)
class SystemOutcome:
    """The predictions of a system, or the reason why there are none.

    Attributes:
        seconds, cpu_seconds: time to predict, with training if the task has any.
    """

    predictions: Sequence[Any] = ()
    not_run: str | None = None
    seconds: float = 0.0
    cpu_seconds: float = 0.0


@dataclass(frozen=True)
class TaskOutcome:
    """A task with the outcome of each system; without ``task`` it was not run, for a reason."""

    name: str
    config: SuiteTask
    task: PreparedTask | None
    not_run: str | None = None
    outcomes: Mapping[str, SystemOutcome] = field(default_factory=dict[str, SystemOutcome])


def require_evaluable(models: Mapping[str, TextModel], word_vectors: TextModel | None) -> None:
    """Raise UserError for a model with the name of a baseline, and for an ONNX folder.

    The model of an ONNX folder has no weights by which its predictions could be kept.
    """
    for name in (WORD_VECTORS, WORDS_ALONE):
        if name in models:
            raise UserError(f"a baseline is called {name!r}: rename the folder of the model")
    baselines = {} if word_vectors is None else {WORD_VECTORS: word_vectors}
    for name, model in {**models, **baselines}.items():
        if next(model.model.parameters(), None) is None:
            raise UserError(f"{name} is a graph: name the folder that it was exported from")


def suite_systems(
    models: Mapping[str, TextModel], word_vectors: TextModel | None
) -> list[SuiteSystem]:
    """Return the models and the baselines."""
    systems = [SuiteSystem(name, model) for name, model in models.items()]
    if word_vectors is not None:
        systems.append(SuiteSystem(WORD_VECTORS, word_vectors, is_baseline=True))
    return [*systems, SuiteSystem(WORDS_ALONE, None, is_baseline=True)]


def run_suite(
    suite: EvaluationSuite, data: Path, systems: Sequence[SuiteSystem], folder: Path, log: Log
) -> Iterator[TaskOutcome]:
    """Yield the outcome of each task.

    Predictions are kept in ``folder``. A task whose data are missing or invalid is not run, and
    neither is a system that cannot do it.
    """
    digests = {system.name: system.digest for system in systems}
    for name, config in suite.tasks.items():
        try:
            identity = config.identity(data)
            task = config.prepare(data)
        except UserError as error:
            log(f"{name}: not run: {error}")
            yield TaskOutcome(name, config, None, str(error))
            continue
        outcomes: dict[str, SystemOutcome] = {}
        for system in systems:
            key = json.dumps([__version__, name, *identity, digests[system.name]])
            file = folder / f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"
            outcomes[system.name] = _outcome(task, system, file)
            log(f"{name}, {system.name}: {_summary(task, outcomes[system.name])}")
        yield TaskOutcome(name, config, task, None, outcomes)


def _outcome(task: PreparedTask, system: SuiteSystem, file: Path) -> SystemOutcome:
    """Return the outcome that a file keeps, or compute it and write the file."""
    if kept := read_results(file):
        return SystemOutcome(**kept)
    start, cpu_start = time.perf_counter(), time.process_time()
    try:
        predictions = system.predict(task)
    except UserError as error:
        return SystemOutcome(not_run=str(error))
    outcome = SystemOutcome(
        predictions,
        None,
        round(time.perf_counter() - start, 2),
        round(time.process_time() - cpu_start, 2),
    )
    write_text(file, json.dumps(vars(outcome)) + "\n")
    return outcome


def _summary(task: PreparedTask, outcome: SystemOutcome) -> str:
    if outcome.not_run is not None:
        return f"not run: {outcome.not_run}"
    sums = task.sums(outcome.predictions)
    score = float(sums.statistic(sums.values.sum(0)))
    return f"{task.metric} {100 * score:.1f} ({outcome.seconds:.1f} s)"
