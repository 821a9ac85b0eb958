"""Suites in mteb, the benchmark of text vectors: our models as its models, our tasks as its tasks.

Its evaluators compute the scores, so they check ours. mteb compares vectors of texts; tasks that
need hidden states of words or probabilities of sentences are left out.
"""

import hashlib
import json
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bertwright import __version__
from bertwright.core.errors import UserError
from bertwright.core.optional_dependencies import require_library
from bertwright.models.text_model import TextModel
from bertwright.suites.suite import EvaluationSuite


def mteb_model(model: TextModel, name: str) -> Any:
    """Return a model for ``mteb.evaluate``; ``name`` stands in mteb's results.

    Errors: MissingExtra without mteb, and UserError for a model without one vector for each text.
    """
    require_library("mteb", "mteb")
    from bertwright.suites.mteb.model import MtebModel

    return MtebModel(model, name)


def mteb_tasks(suite: EvaluationSuite, data: Path) -> Iterator[tuple[str, Any]]:
    """Yield the name of each task that compares text vectors, and the task for ``mteb.evaluate``.

    Tasks whose data are missing or invalid are left out. Errors: MissingExtra without mteb.
    """
    require_library("mteb", "mteb")
    from bertwright.suites.mteb.tasks import as_mteb_task

    for name, config in suite.tasks.items():
        try:
            task = as_mteb_task(name, config.prepare(data))
        except UserError:
            continue
        if task is not None:
            yield name, task


def mteb_scores(
    suite: EvaluationSuite,
    data: Path,
    models: Mapping[str, TextModel],
    cache_folder: Path,
    log: Callable[[str], None] = lambda line: None,
) -> dict[str, dict[str, float]]:
    """Return the scores that mteb computes, by task and model; its result files are kept.

    mteb knows a task by its name alone, so the files of other examples are in another folder. A
    model without one vector for each text has no scores.
    """
    require_library("mteb", "mteb")
    import mteb

    encoders: dict[str, Any] = {}
    for name, model in models.items():
        try:
            encoders[name] = mteb_model(model, name)
        except UserError as error:
            log(f"mteb: {error}")
    scores: dict[str, dict[str, float]] = {}
    for task_name, task in mteb_tasks(suite, data):
        inputs = json.dumps([__version__, *suite.tasks[task_name].identity(data)])
        cache = mteb.ResultCache(cache_folder / hashlib.sha256(inputs.encode()).hexdigest()[:16])
        for name, encoder in encoders.items():
            log(f"mteb: {task_name}, {name}")
            with _without_progress_bars():
                result = mteb.evaluate(encoder, task, cache=cache, show_progress_bar=False)
            (split_scores,) = result.task_results[0].scores.values()
            scores.setdefault(task_name, {})[name] = float(split_scores[0]["main_score"])
    return scores


@contextmanager
def _without_progress_bars() -> Generator[None]:
    """Suppress the progress bars of ``datasets``, in which mteb holds the texts."""
    from datasets.utils import logging

    were_enabled = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if were_enabled:
            logging.enable_progress_bar()
