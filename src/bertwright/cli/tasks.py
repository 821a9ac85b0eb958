"""Which task a command line asks for: one by name, or one of its own made of columns."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from bertwright.cli.stated import refuse

if TYPE_CHECKING:
    from bertwright.tasks.data import TaskData
    from bertwright.tasks.task import Task

OPEN = ("similarity", "retrieval", "rank")
"""Tasks by name whose columns are the user's."""

TAGS = ("tag", "upos", "xpos", "feats")
"""The columns of tags."""

COLUMNS = ("text", "pair", "label", "other")
"""The options that name them."""


@dataclass(frozen=True)
class Asked:
    """What the options of a command say of its task."""

    task: str | None
    data: Path | None
    train: Path | None
    dev: Path | None
    text: str
    pair: str | None
    label: str
    others: list[str]
    answer: str
    tags: str | None

    def several(
        self, context: typer.Context, answer: dict[str, Any], spelled: dict[str, Any]
    ) -> "list[TaskData]":
        """The tasks with their data; ``answer`` are settings of it that are stated one by one, and
        ``spelled`` the same as they were typed."""
        from bertwright.errors import UserError
        from bertwright.tasks.data import TaskData

        names = [] if self.task is None else self.task.split(",")
        if len(names) > 1:
            refuse(context, f"--task {self.task}: each has a folder in --data", "train", "dev")
            if self.data is None:
                raise UserError(f"--task {self.task}: --data DIR has a folder for each of them")
            return [
                TaskData(self._own(context, name, answer, spelled), folder_of(self.data, name))
                for name in names
            ]
        task = self._own(context, names[0] if names else None, answer, spelled)
        return [TaskData(task, self.data, self.train, self.dev)]

    def _own(
        self,
        context: typer.Context,
        name: str | None,
        answer: dict[str, Any],
        spelled: dict[str, Any],
    ) -> "Task":
        task = self._task(context, name)
        if answer:
            task = self._answered(task, answer, spelled)
        self._require_compared(task)
        return task

    def _answered(self, task: "Task", answer: dict[str, Any], spelled: dict[str, Any]) -> "Task":
        """The task with settings of its answer."""
        from bertwright.recipes.loading import merged
        from bertwright.recipes.spelling import as_spelled
        from bertwright.tasks.answers import Answer
        from bertwright.tasks.task import Task

        stated = merged(task.answer.model_dump(mode="json"), answer)
        if (kind := Answer.kinds().get(str(stated.get("kind")))) is not None:
            stated = as_spelled(kind, stated, spelled)
        chosen = explained(lambda: Answer.choose(stated), "answer")
        metrics = task.metrics if chosen.kind == task.answer.kind else ()  # type: ignore[attr-defined]
        return Task(task.name, chosen, task.reader, metrics, task.labels, task.source)

    def _require_compared(self, task: "Task") -> None:
        """Refuse texts that are no partner where nothing asks for them."""
        from bertwright.errors import UserError
        from bertwright.tasks.answers import ClosenessAnswer
        from bertwright.tasks.rankings import RANKINGS

        answer, ranked = task.answer, set(task.metrics) & set(RANKINGS)
        pairs_alone = isinstance(answer, ClosenessAnswer) and answer.loss == "cosine"
        if self.others and pairs_alone and not ranked:
            raise UserError(
                "--other: the loss cosine learns from pairs alone: leave it out, or choose "
                "answer.loss=in-batch or triplet"
            )

    def _task(self, context: typer.Context, name: str | None) -> "Task":
        from bertwright.axes import did_you_mean
        from bertwright.errors import UserError
        from bertwright.tasks.catalogue import find_task, table_task, tagging_task
        from bertwright.tasks.catalogue.making import with_columns
        from bertwright.tasks.formats.examples import Example
        from bertwright.tasks.formats.tables import Columns

        columns = Columns(self.text, self.pair, self.label, others=tuple(self.others))
        names = (*COLUMNS, "answer")
        if name in OPEN:
            refuse(context, f"--task {name} says what is asked", "answer", "tags")
            if name == "rank":
                refuse(context, "--task rank learns from pairs alone", "other")
            task = find_task(name)
            label = self.label if name != "retrieval" or _stated(context, "label") else None
            return with_columns(task, replace(columns, second=self.pair or "pair", label=label))
        if name is not None:
            refuse(context, f"--task {name} says what is read and asked", *names, "tags")
            return find_task(name)
        if self.tags is not None:
            refuse(context, "--tags reads words and their tags", *names)
            if self.tags not in TAGS:
                raise UserError(f"--tags: no column {self.tags!r}{did_you_mean(self.tags, TAGS)}")
            return tagging_task("tag") if self.tags == "tag" else find_task(self.tags)
        refuse(context, "--other is for --task similarity and retrieval", "other")
        for name, column, taken in (
            ("pair", self.pair, [self.text]),
            ("label", self.label, [self.text, self.pair]),
        ):
            if column in taken:
                raise UserError(f"--{name} {column}: that is the column of a text: name another")
        own = (self.data or self.train or Path("task")).name.split(".")[0]
        task = explained(lambda: table_task(own, columns, self.answer), "--answer")
        if Example not in task.answer.shapes():
            raise UserError(
                f"--answer {self.answer} is not for texts in columns: choose class, labels, number "
                f"or cloze, or a task by name with --task"
            )
        return task


def folder_of(data: Path, task: str) -> Path:
    """The folder of a task among those of several, in either case and spelling."""
    from bertwright.errors import UserError

    wanted = task.lower().rpartition("/")[2].replace("-", "").replace("_", "")
    for folder in sorted(data.iterdir()) if data.is_dir() else []:
        if folder.is_dir() and folder.name.lower().replace("-", "").replace("_", "") == wanted:
            return folder
    raise UserError(f"{data}: there is no folder {task!r} in it")


def explained(make: Any, what: str) -> Any:
    """What is made, with one sentence where it cannot be."""
    from pydantic import ValidationError

    from bertwright.axes import explain
    from bertwright.errors import UserError

    try:
        return make()
    except ValidationError as error:
        raise explain(error, what) from None
    except ValueError as error:
        raise UserError(f"{what}: {error}") from None


def _stated(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
