"""All tasks of GLUE in a data folder, with the leaderboard score and its submission files.

The score is the mean over tasks; a task with two metrics counts with the mean of both, MNLI with
the mean of its two development splits (Wang et al. 2019, section 3).
"""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from bertwright.core.errors import UserError
from bertwright.core.files import atomic_file, output_lock, write_text
from bertwright.core.statistics import estimate
from bertwright.models.saving import TRAINING_FILE
from bertwright.models.text_model import TextModel
from bertwright.tasks.catalogue import find_split_file, glue
from bertwright.tasks.evaluation.evaluate import evaluate
from bertwright.tasks.fine_tuned_model import FineTunedModel, is_fine_tuned, load_fine_tuned_model
from bertwright.tasks.finetuning.config import FineTuningConfig
from bertwright.tasks.finetuning.finetune import SeedEvaluation, finetune
from bertwright.tasks.finetuning.run import ReporterFactory, no_reporter
from bertwright.tasks.formats.tables import TableReader, read_table
from bertwright.tasks.outputs import RegressionOutput
from bertwright.tasks.provenance import HELD_OUT, MODEL, TRAIN, provenance
from bertwright.tasks.task import Task

SUBMISSION_FILES = {
    "cola": "CoLA.tsv",
    "sst-2": "SST-2.tsv",
    "mrpc": "MRPC.tsv",
    "sts-b": "STS-B.tsv",
    "qqp": "QQP.tsv",
    "mnli": "MNLI-m.tsv",
    "qnli": "QNLI.tsv",
    "rte": "RTE.tsv",
    "wnli": "WNLI.tsv",
}
"""Submission files by task."""

MISMATCHED_FILE, DIAGNOSTIC_FILE = "MNLI-mm.tsv", "AX.tsv"
"""Further submission files of the MNLI model."""

MISMATCH_REASONS = {
    MODEL: "another model",
    TRAIN: "other training examples",
    HELD_OUT: "other development examples",
}
"""Inputs that must be the same when a run is resumed."""


def glue_folders(data: Path) -> dict[str, Path]:
    """Return the task folders in a data folder; UserError if there is none."""
    if not data.is_dir():
        raise UserError(f"{data}: no such folder")
    by_name = {folder.name.lower().replace("-", ""): folder for folder in data.iterdir()}
    names = [task.name for task in glue.TASKS]
    folders = {n: by_name[n.replace("-", "")] for n in names if n.replace("-", "") in by_name}
    if not folders:
        raise UserError(f"{data} has no folder of a GLUE task: {', '.join(names)}")
    return folders


def run_glue(
    model: TextModel,
    data: Path,
    output: Path,
    *,
    make_reporter: ReporterFactory = no_reporter,
    log: Callable[[str], None] = lambda line: None,
    settings: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Fine-tune for every task.

    Writes a folder for each task, ``glue.json`` and, if there are test files, ``submission``.
    Tasks that ``output`` already contains, from the same settings, model and data, are skipped.
    """
    settings = dict(settings or {})
    folders = glue_folders(data)
    tasks = {task.name: task for task in glue.TASKS if task.name in folders}
    for name, task in tasks.items():
        _require_files(task, folders[name])
    output.mkdir(parents=True, exist_ok=True)
    scores: dict[str, dict[str, Any]] = {}
    with output_lock(output):
        done = [name for name in tasks if is_fine_tuned(output / name)]
        config = FineTuningConfig.from_settings(settings)
        for name in done:
            _require_same_inputs(model, tasks[name], folders[name], output / name, config)
        for name, folder in folders.items():
            log(f"glue: {name}")
            task = tasks[name]
            if name not in done:
                finetune(
                    model,
                    task,
                    train=find_split_file(folder, "train"),
                    dev=find_split_file(folder, "dev"),
                    output=output / name,
                    make_reporter=make_reporter,
                    evaluate_seed=_mismatched_evaluation(task, folder) if name == "mnli" else None,
                    **settings,
                )
            scores[name] = _leaderboard_scores(task, output / name)
            _write_submission(task, folder, output)
        result = {
            "tasks": scores,
            "score": fmean(task_scores["score"] for task_scores in scores.values()),
            "missing": [task.name for task in glue.TASKS if task.name not in scores],
        }
        write_text(output / "glue.json", json.dumps(result, indent=1) + "\n")
    return result


def _require_files(task: Task, folder: Path) -> None:
    """Raise UserError for a missing file."""
    find_split_file(folder, "train")
    for keyword in ("matched", "mismatched") if task.name == "mnli" else ("",):
        find_split_file(folder, "dev", keyword)
    _test_files(task, folder)


def _require_same_inputs(
    model: TextModel, task: Task, folder: Path, task_folder: Path, config: FineTuningConfig
) -> None:
    """Raise UserError for a task trained with other settings, model or data."""
    record = json.loads((task_folder / TRAINING_FILE).read_text(encoding="utf-8"))
    # Compilation does not change results, and a run may have disabled it.
    settings = config.model_dump(mode="json", exclude={"compile"})
    settings["learning_rate"] = config.learning_rate_for(model.model.recipe)
    before = record["settings"]
    if changed := next((n for n, value in settings.items() if before.get(n) != value), None):
        raise UserError(
            f"{task_folder} was trained with {changed}={before.get(changed)!r}, not "
            f"{settings[changed]!r}: choose another folder, or remove it"
        )
    train, dev = (task.read_examples(find_split_file(folder, split)) for split in ("train", "dev"))
    recorded = record.get("provenance", {})
    for name, value in provenance(model, train, dev).items():
        if recorded.get(name) != value:
            raise UserError(
                f"{task_folder} was trained with {MISMATCH_REASONS[name]}, or has no record of "
                f"them: choose another folder, or remove it"
            )


def _mismatched_evaluation(task: Task, folder: Path) -> SeedEvaluation:
    """Return the evaluation on the mismatched development split of MNLI."""
    examples = task.read_examples(find_split_file(folder, "dev", "mismatched"))
    return lambda best: evaluate(best.models[0], examples)["metrics"]


def _leaderboard_scores(task: Task, task_folder: Path) -> dict[str, Any]:
    """Return the leaderboard scores of a finished task: means over the seeds."""
    record = json.loads((task_folder / TRAINING_FILE).read_text(encoding="utf-8"))
    metrics = _seed_metrics(record, "metrics")
    if task.name == "mnli":
        mismatched = _seed_metrics(record, "extra_metrics")["accuracy"]
        metrics = {"matched": metrics["accuracy"], "mismatched": mismatched}
    counted = [metrics["matthews"]] if task.name == "cola" else list(metrics.values())
    score = estimate([fmean(seed_values) for seed_values in zip(*counted, strict=True)])
    means = {name: fmean(values) for name, values in metrics.items()}
    return {"score": score.mean, **means, "interval": score.interval}


def _seed_metrics(training_record: Mapping[str, Any], name: str) -> Mapping[str, list[float]]:
    """Return metrics by seed, also for a single seed."""
    single = {metric: [value] for metric, value in training_record[name].items()}
    return training_record.get(f"{name}_by_seed", single)


def _write_submission(task: Task, data_folder: Path, output: Path) -> None:
    """Write the predictions for the test files of a task, if there are any."""
    model = load_fine_tuned_model(output / task.name)
    for name, test in _test_files(task, data_folder).items():
        (output / "submission").mkdir(exist_ok=True)
        with (
            atomic_file(output / "submission" / name) as temporary,
            open(temporary, "w", encoding="utf-8") as opened,
        ):
            opened.write("index\tprediction\n")
            opened.writelines(f"{n}\t{value}\n" for n, value in _test_predictions(model, test))


def _test_files(task: Task, folder: Path) -> dict[str, Path]:
    """Return the test files, keyed by the names of their submission files."""
    files: dict[str, Path] = {}
    keywords = {SUBMISSION_FILES[task.name]: ""}
    if task.name == "mnli":
        keywords = {SUBMISSION_FILES["mnli"]: "matched", MISMATCHED_FILE: "mismatched"}
        diagnostic = folder.parent / "diagnostic" / "diagnostic.tsv"
        files = {DIAGNOSTIC_FILE: diagnostic} if diagnostic.is_file() else {}
    if any("test" in file.name.lower() for file in folder.iterdir()):
        files |= {n: find_split_file(folder, "test", keyword) for n, keyword in keywords.items()}
    return files


def _test_predictions(model: FineTunedModel, test_file: Path) -> Iterator[tuple[int, str]]:
    """Iterate over index and prediction for a test file."""
    task = model.task
    assert isinstance(task.reader, TableReader)
    # Test files have a header line, also for CoLA.
    columns = task.reader.columns
    names = [name for name in (columns.text, columns.pair) if name is not None]
    examples = [
        task.reader.unlabelled_example(location, row)
        for location, row in read_table(test_file, None, names)
    ]
    is_number = isinstance(task.output_type, RegressionOutput)
    for index, prediction in enumerate(model.predict(examples)):
        yield index, f"{prediction.value:.3f}" if is_number else str(prediction.value)
