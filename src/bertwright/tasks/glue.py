"""All tasks of GLUE that are there, with the leaderboard's score and the files that it takes.

A task with two metrics counts with their mean, MNLI with that of its two development parts; the
score is the mean over tasks (Wang et al. 2019, section 3).
"""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from bertwright.errors import UserError
from bertwright.files import atomic_file, held_alone, write_text
from bertwright.model.folder import TRAINING
from bertwright.model.text_model import TextModel
from bertwright.statistics import estimate
from bertwright.tasks.catalogue import find_part, glue
from bertwright.tasks.evaluation import evaluate
from bertwright.tasks.fine_tuned import FineTuned, is_fine_tuned, load_fine_tuned
from bertwright.tasks.finetuning import Each, finetune
from bertwright.tasks.finetuning_settings import FineTuning
from bertwright.tasks.formats.tables import TableReader, rows_of
from bertwright.tasks.origins import HELD_OUT, MODEL, TRAIN, origins
from bertwright.tasks.task import Task
from bertwright.tasks.task_training import Watch, unwatched

SUBMISSIONS = {
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
"""The files of the leaderboard by task."""

MISMATCHED, DIAGNOSTIC = "MNLI-mm.tsv", "AX.tsv"
"""Further ones that the model of MNLI answers."""

OTHER = {
    MODEL: "another model",
    TRAIN: "other training examples",
    HELD_OUT: "other development examples",
}
"""What may not be the same when a task is asked again."""


def glue_folders(data: Path) -> dict[str, Path]:
    """The folders of the tasks that are there; UserError where none is."""
    if not data.is_dir():
        raise UserError(f"{data}: no such folder")
    by_name = {folder.name.lower().replace("-", ""): folder for folder in data.iterdir()}
    names = [task.name for task in glue.TASKS]
    found = {n: by_name[n.replace("-", "")] for n in names if n.replace("-", "") in by_name}
    if not found:
        raise UserError(f"{data} has no folder of a task of GLUE: {', '.join(names)}")
    return found


def run_glue(
    model: TextModel,
    data: Path,
    out: Path,
    *,
    watch: Watch = unwatched,
    say: Callable[[str], None] = lambda line: None,
    settings: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Fine-tune for every task and write a folder for each, ``glue.json`` and, where there are test
    files, ``submission``. What stands in ``out`` already from the same settings, model and data is
    not done again.
    """
    chosen = dict(settings or {})
    folders = glue_folders(data)
    for task in glue.TASKS:
        if task.name in folders:
            _require_files(task, folders[task.name])
    out.mkdir(parents=True, exist_ok=True)
    found: dict[str, dict[str, Any]] = {}
    with held_alone(out):
        tasks = {task.name: task for task in glue.TASKS if task.name in folders}
        done = [name for name in tasks if is_fine_tuned(out / name)]
        for name in done:
            _check_same(model, tasks[name], folders[name], out / name, FineTuning.of(chosen))
        for name, folder in folders.items():
            say(f"glue: {name}")
            task = tasks[name]
            if name not in done:
                finetune(
                    model,
                    task,
                    train=find_part(folder, "train"),
                    dev=find_part(folder, "dev"),
                    out=out / name,
                    watch=watch,
                    each=_mismatched(task, folder) if name == "mnli" else None,
                    **chosen,
                )
            found[name] = _told(task, out / name)
            _submit(task, folder, out)
        result = {
            "tasks": found,
            "score": fmean(of["score"] for of in found.values()),
            "missing": [task.name for task in glue.TASKS if task.name not in found],
        }
        write_text(out / "glue.json", json.dumps(result, indent=1) + "\n")
    return result


def _require_files(task: Task, folder: Path) -> None:
    """Errors: UserError where a file that will be read is not there."""
    find_part(folder, "train")
    for word in ("matched", "mismatched") if task.name == "mnli" else ("",):
        find_part(folder, "dev", word)
    _tests(task, folder)


def _check_same(model: TextModel, task: Task, folder: Path, own: Path, chosen: FineTuning) -> None:
    """Refuse to take what was learned with other settings, from another model or from other data
    for what is asked: UserError."""
    about = json.loads((own / TRAINING).read_text(encoding="utf-8"))
    # How steps are compiled is no matter of what is found, and a run may have changed it itself.
    stated = chosen.model_dump(mode="json", exclude={"compile"})
    stated["rate"] = chosen.rate_for(model.model.recipe)
    before = about["settings"]
    if odd := next((name for name, value in stated.items() if before.get(name) != value), None):
        raise UserError(
            f"{own} was trained with {odd}={before.get(odd)!r}, asked is {stated[odd]!r}: choose "
            f"another folder, or remove it"
        )
    train, dev = (task.read(find_part(folder, part)) for part in ("train", "dev"))
    known = about.get("origins", {})
    for name, value in origins(model, train, dev).items():
        if known.get(name) != value:
            raise UserError(
                f"{own} was trained with {OTHER[name]}, or does not say with which: choose another "
                f"folder, or remove it"
            )


def _mismatched(task: Task, folder: Path) -> Each:
    """What the model of a seed scores on the second development part of MNLI."""
    examples = task.read(find_part(folder, "dev", "mismatched"))
    return lambda best: evaluate(best.models[0], examples)["metrics"]


def _told(task: Task, own: Path) -> dict[str, Any]:
    """What the leaderboard would count, of the folder of a task that has been learned: means over
    the seeds."""
    about = json.loads((own / TRAINING).read_text(encoding="utf-8"))
    figures = _by_seed(about, "metrics")
    if task.name == "mnli":
        other = _by_seed(about, "further")["accuracy"]
        figures = {"matched": figures["accuracy"], "mismatched": other}
    counted = [figures["matthews"]] if task.name == "cola" else list(figures.values())
    score = estimate([fmean(of_seed) for of_seed in zip(*counted, strict=True)])
    means = {name: fmean(values) for name, values in figures.items()}
    return {"score": score.mean, **means, "interval": score.interval}


def _by_seed(about: Mapping[str, Any], name: str) -> Mapping[str, list[float]]:
    """Figures of every seed, of a single one those that are told."""
    single = {figure: [value] for figure, value in about[name].items()}
    return about.get(f"{name}_by_seed", single)


def _submit(task: Task, folder: Path, out: Path) -> None:
    """The answers to the test files of a task, where there are such."""
    model = load_fine_tuned(out / task.name)
    for name, test in _tests(task, folder).items():
        (out / "submission").mkdir(exist_ok=True)
        with (
            atomic_file(out / "submission" / name) as temporary,
            open(temporary, "w", encoding="utf-8") as opened,
        ):
            opened.write("index\tprediction\n")
            opened.writelines(f"{n}\t{said}\n" for n, said in _answers(model, test))


def _tests(task: Task, folder: Path) -> dict[str, Path]:
    """The files that are to be answered, by what the leaderboard calls the answers."""
    found: dict[str, Path] = {}
    words = {SUBMISSIONS[task.name]: ""}
    if task.name == "mnli":
        words = {SUBMISSIONS["mnli"]: "matched", MISMATCHED: "mismatched"}
        diagnostic = folder.parent / "diagnostic" / "diagnostic.tsv"
        found = {DIAGNOSTIC: diagnostic} if diagnostic.is_file() else {}
    if any("test" in file.name.lower() for file in folder.iterdir()):
        found |= {name: find_part(folder, "test", word) for name, word in words.items()}
    return found


def _answers(model: FineTuned, test: Path) -> Iterator[tuple[int, str]]:
    """What a model answers to a test file, by index."""
    task = model.task
    assert isinstance(task.reader, TableReader)
    # Test files have a row of names, that of CoLA too.
    columns = task.reader.columns
    wanted = [c for c in (columns.first, columns.second) if c is not None]
    examples = [task.reader.example(where, row) for where, row in rows_of(test, None, wanted)]
    for number, said in enumerate(model.predict(examples)):
        number_said = task.answer.name == "number"
        yield number, f"{said.answer:.3f}" if number_said else str(said.answer)
