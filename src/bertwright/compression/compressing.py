"""From a fine-tuned model to a small one, by a method."""

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bertwright.compression.beginning import beginning
from bertwright.compression.kept_students import KeptStudents
from bertwright.compression.method import Method, Stage
from bertwright.compression.quantisation import unrounded
from bertwright.compression.suiting import require_suiting, require_transfer_read
from bertwright.compression.transfer import TransferSets
from bertwright.errors import UserError
from bertwright.files import require_free, require_room
from bertwright.model.packing import num_bytes
from bertwright.model.text_model import TextModel
from bertwright.recipes.loading import merged
from bertwright.statistics import estimate, paired
from bertwright.tasks.adaptation.low_rank import matrices_of
from bertwright.tasks.data import TaskData
from bertwright.tasks.evaluation import evaluate
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.finetuning import FineTuneResult, finetune
from bertwright.tasks.finetuning_settings import FineTuning
from bertwright.tasks.formats.examples import AnyExample, Examples
from bertwright.tasks.heads import Pooler
from bertwright.tasks.task import Task
from bertwright.tasks.task_training import Watch, unwatched


@dataclass(frozen=True)
class Compressed:
    """A teacher's score, those of its student by seed, and those of the same student that has
    learned as many epochs of the examples of the task, from the labels alone; () where that was not
    asked."""

    method: str
    teacher: FineTuned
    of_teacher: float
    runs: Sequence[FineTuneResult]
    alone: Sequence[float]
    seconds: float

    @property
    def best(self) -> FineTuneResult:
        """The best of all seeds."""
        return max(self.runs, key=lambda run: run.best.score)

    @property
    def scores(self) -> list[float]:
        """Of the students, by seed."""
        return [run.best.score for run in self.runs]

    def as_dict(self) -> dict[str, Any]:
        """What ``compress --json`` prints."""
        scores = self.scores
        found = estimate(scores)
        before, after = (num_parameters(model) for model in (self.teacher, self.best.model))
        held, holds = (num_bytes(m.net, m.net.grids) for m in (self.teacher, self.best.model))
        told: dict[str, Any] = {
            "method": self.method,
            "task": self.best.task.name,
            "metric": self.best.metric,
            "teacher": self.of_teacher,
            "scores": scores,
            "mean": found.mean,
            "interval": found.interval,
            "kept": 100 * found.mean / self.of_teacher if self.of_teacher > 0 else None,
            "parameters": after["all"],
            "parameters_without_tables": after["without_tables"],
            "smaller": before["all"] / after["all"],
            "smaller_without_tables": before["without_tables"] / after["without_tables"],
            "bytes": holds,
            "smaller_in_bytes": held / holds,
            "zeros": share_of_zeros(self.best.model),
            "seconds": self.seconds,
        }
        if self.alone:
            told["alone"] = list(self.alone)
            lead = paired(scores, self.alone)
            told["better_than_alone"] = lead.mean if lead.interval is None else str(lead)
        return told


def compress(
    teacher: FineTuned,
    method: str,
    data: TaskData,
    *,
    student: TextModel | str | None = None,
    layers: int | None = None,
    transfer: Iterable[AnyExample] | None = None,
    namer: TextModel | None = None,
    work: Path | None = None,
    seeds: int = 1,
    alone: bool = False,
    out: Path | None = None,
    watch: Watch = unwatched,
    settings: Mapping[str, Any] | None = None,
) -> Compressed:
    """Make a small model of a fine-tuned one, for the same task.

    The student is ``layers`` of the teacher (half of them where nothing is said), or of another
    model, which else is taken whole; or it begins from nothing, by the name of a recipe or its
    file, drawn anew by every seed. ``transfer`` are texts without labels, for methods that learn
    from such: without any, those of the task. There may be more of them than memory holds; they
    must be there as often as they are asked for. ``namer`` names words for methods that change
    texts: without one the student, where it can. In the folder ``work`` the changed texts, what the
    teacher says of them and the student behind each stage but the last are kept: a run that was
    stopped goes on with them. With ``alone`` the same student is trained without a teacher, too.
    ``settings`` are those of fine-tuning, for all stages. The best model is written to ``out``.

    Errors: UserError for what does not go together.
    """
    began, how = time.monotonic(), Method.load(method)
    if "seeds" in (settings or {}):
        raise UserError("seeds are counted by compress itself: say --seeds, and no seeds=")
    if next(teacher.net.parameters(), None) is None:
        raise UserError("a graph cannot be the teacher: name the folder that it was exported from")
    if out is not None:
        require_free(out)
    if work is not None:
        require_room(work / "student")
    own = {} if student or how.student else _head_like(teacher)
    usual, stated = {"length": teacher.maker.length, **own}, settings or {}
    first = FineTuning.of(merged(usual, stated)).seed
    require_suiting(how, teacher.net.recipe.encoder, student, layers)
    if transfer is not None:
        require_transfer_read(how, student)
    task, train, dev = data.parts()
    task = replace(task, answer=task.answer.unsettled())
    each = range(first, first + seeds)
    with nullcontext(work) if work else TemporaryDirectory() as folder:
        names = student if namer is None and isinstance(student, TextModel) else namer
        sets = TransferSets(teacher, train, transfer, Path(folder), names, first)
        begins = beginning(teacher, student, layers, how, sets)
        for stage in how.stages:
            sets.of(stage.texts, stage.augmentation)
        kept = KeptStudents(Path(folder), teacher, train, dev)
        taught = how.beginning_with(usual)
        schooling = _Schooling(taught, teacher, begins, task, sets, dev, watch, stated, kept)
        compressed = Compressed(
            method,
            teacher,
            next(iter(evaluate(_unsettled(teacher), dev)["metrics"].values())),
            [schooling.taught(seed) for seed in each],
            [schooling.alone(seed).best.score for seed in each] if alone else (),
            time.monotonic() - began,
        )
    if out is not None:
        told = json.dumps(compressed.as_dict(), indent=1) + "\n"
        compressed.best.write(out, {"compression.json": told})
    return compressed


def _unsettled(teacher: FineTuned) -> FineTuned:
    """One that answers as its students do in training: whatever was settled for it alone."""
    task = replace(teacher.task, answer=teacher.task.answer.unsettled())
    about = teacher.maker.length, teacher.precision, teacher.temperature
    return FineTuned(teacher.net, teacher.tokenizer, task, *about)


def _head_like(teacher: FineTuned) -> Mapping[str, Any]:
    """For layers of a teacher, which are read as it is; its pooler is drawn anew as the usual
    head."""
    choice = teacher.net.choice
    return {} if isinstance(choice, Pooler) else {"head": choice}


def num_parameters(model: FineTuned) -> dict[str, int]:
    """How many it has, and how many stand in no table of pieces or places."""
    sizes = {name: p.numel() for name, p in model.net.named_parameters()}
    tables = sum(n for name, n in sizes.items() if name.startswith("encoder.embeddings."))
    return {"all": sum(sizes.values()), "without_tables": sum(sizes.values()) - tables}


def share_of_zeros(model: FineTuned) -> float:
    """Of the weights in the matrices of its blocks."""
    encoder = model.net.encoder
    known = dict(encoder.named_parameters())
    matrices = [known[name] for name in matrices_of(encoder, ("attention", "feed_forward"))]
    zeros = sum(int((each == 0).sum()) for each in matrices)
    return zeros / max(sum(each.numel() for each in matrices), 1)


@dataclass(frozen=True)
class _Schooling:
    """What all seeds share."""

    method: Method
    teacher: FineTuned
    begins: Callable[[int], TextModel]
    task: Task
    sets: TransferSets
    dev: Examples
    watch: Watch
    settings: Mapping[str, Any]
    kept: KeptStudents

    def taught(self, seed: int) -> FineTuneResult:
        """All stages, one after the other; the last one's model."""
        *before, last = self.method.stages
        student, stated = self.begins(seed), {**self.settings, "seed": seed}
        for stage in before:
            learn = partial(self._learned, student, stage, stated)
            texts = self.sets.of(stage.texts, stage.augmentation)
            student = self.kept.behind(stage, student, texts, stated, learn)
        return self._learned(student, last, stated)

    def _learned(
        self, student: TextModel, stage: Stage, stated: Mapping[str, Any]
    ) -> FineTuneResult:
        """What a stage makes of a student."""
        student, settings = self._before(student, stage)
        return finetune(
            student,
            self.task,
            train=self.sets.of(stage.texts, stage.augmentation),
            dev=self.dev,
            watch=self.watch,
            teacher=stage.taught_by(self.teacher),
            **merged(settings, stated),
        )

    def _stage_alone(
        self, student: TextModel, stage: Stage, stated: Mapping[str, Any]
    ) -> FineTuneResult:
        """What a stage makes of a student without its teacher."""
        student, settings = self._before(student, stage)
        return self._learned_alone(student, merged(settings, stated))

    def _learned_alone(self, student: TextModel, settings: Mapping[str, Any]) -> FineTuneResult:
        """What the labels make of a student."""
        train = self.sets.train
        return finetune(student, self.task, train=train, dev=self.dev, watch=self.watch, **settings)

    def _before(self, student: TextModel, stage: Stage) -> tuple[TextModel, Mapping[str, Any]]:
        """What a stage begins with, and its settings."""
        student = unrounded(student)
        if stage.removing is None and stage.bits is None:
            return student, stage.settings
        assert isinstance(student, FineTuned), "the method suits"
        settings = stage.settings
        if stage.removing is not None:
            student = stage.removing.left_of(student, self.sets.train)
        if stage.bits is not None:
            bits = stage.bits.of(student, self.sets.train)
            settings = merged(settings, {"adaptation": {"bits": bits}})
        return student, settings

    def alone(self, seed: int) -> FineTuneResult:
        """The student with the labels alone, for as many epochs. Where a stage removes something,
        or chooses bits, it goes through the same ones: else it would be another network."""
        student, stated = self.begins(seed), {**self.settings, "seed": seed}
        *before, last = self.method.stages
        if any(stage.removing or stage.bits for stage in self.method.stages):
            for stage in before:
                student = self._stage_alone(student, stage, stated).model
            return self._stage_alone(student, last, stated)
        stages = [merged(stage.settings, stated) for stage in self.method.stages]
        epochs = sum(FineTuning.of(stage).epochs for stage in stages)
        return self._learned_alone(student, {**stages[-1], "epochs": epochs})
