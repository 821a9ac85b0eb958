"""Options that define a task and its data: a task by name, or a task on table columns."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bertwright.cli.options import is_stated, refuse_options
from bertwright.cli.output import log
from bertwright.core.errors import UserError
from bertwright.data.hub.reference import HubDataset

if TYPE_CHECKING:
    from bertwright.tasks.data.task_data import TaskData
    from bertwright.tasks.finetuning.run import ReporterFactory
    from bertwright.tasks.formats.tables import Columns
    from bertwright.tasks.task import Task

COLUMN_TASKS = ("similarity", "retrieval", "rank", "text-to-text")
"""Named tasks whose columns the user chooses."""

TAG_COLUMNS = ("tag", "upos", "xpos", "feats")

COLUMN_OPTIONS = ("text", "pair", "label", "negative")

TrainOption = Annotated[Path | None, typer.Option(help="Training file.")]
DevOption = Annotated[
    Path | None,
    typer.Option(help="Development file; by default a tenth of the training file is held out."),
]
SeedsOption = Annotated[
    int, typer.Option(min=1, help="Number of repetitions, for mean and interval.")
]


def with_options(verb: Callable[..., None]) -> Callable[..., None]:
    """Return a verb whose parameter ``options`` is replaced by options for its fields."""
    signature = inspect.signature(verb)
    options: type[Any] = signature.parameters["options"].annotation
    fields = inspect.signature(options).parameters
    parameters = [
        parameter
        for name, outer in signature.parameters.items()
        for parameter in (fields.values() if name == "options" else (outer,))
    ]

    @wraps(verb)
    def run(**arguments: Any) -> None:
        values = {name: arguments.pop(name) for name in fields}
        verb(options=options(**values), **arguments)

    run.__dict__["__signature__"] = signature.replace(parameters=parameters)
    return run


@dataclass(frozen=True)
class ParsedSettings:
    """Settings of fine-tuning, and settings of the output type as typed."""

    finetuning: dict[str, Any]
    output_type: dict[str, Any]


@dataclass(frozen=True)
class FineTuningOptions:
    """The options common to all verbs that fine-tune."""

    settings: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY=VALUE ...]",
            help="Further settings: adaptation (full, frozen, last, gradual, adapters, lora), "
            "head.kind, head.pooling, head.layers, head.mix, head.activation, dropout (a rate, or "
            "dropout.encoder, .mixer, .embeddings, .words, .head), weight_decay, warmup, schedule, "
            "perturbation (freelb, smart), language_model, label_smoothing, linear_gain, "
            "truncated_backprop, batching (buckets, packed, padded), task_sampling_power, "
            "patience, max_grad_norm, beta_1, beta_2, bias_correction, calibrate, max_length, "
            "precision, compile, seed; output_type.KEY for those of the output, such as "
            "output_type.stride and output_type.window_pooling.",
        ),
    ] = None
    epochs: Annotated[int | None, typer.Option(help="Number of epochs (3).")] = None
    learning_rate: Annotated[
        float | None,
        typer.Option(help="Learning rate; by default scaled to the width of the encoder."),
    ] = None
    batch_size: Annotated[int | None, typer.Option(help="Batch size in examples (32).")] = None
    seeds: SeedsOption = 1

    def parse_settings(self) -> ParsedSettings:
        """Return the settings from KEY=VALUE arguments and from options.

        Errors: UserError for a setting that is given twice.
        """
        from bertwright.recipes.loading import apply_overrides

        stated = {name: getattr(self, name) for name in ("epochs", "learning_rate", "batch_size")}
        options = {name: value for name, value in stated.items() if value is not None}
        overrides = self.settings or []
        paths = [*options, *(override.partition("=")[0] for override in overrides)]
        if twice := next((path for path in paths if paths.count(path) > 1), None):
            raise UserError(f"{twice} is stated twice: leave one out")
        typed = [o for o in overrides if o.partition("=")[0].partition(".")[0] == "output_type"]
        settings = apply_overrides(options, (o for o in overrides if o not in typed))
        if self.seeds > 1:
            if "seeds" in settings:
                raise UserError("seeds is stated twice: leave one out")
            settings["seeds"] = self.seeds
        # YAML would read the word yes as true; a number given as text is still read as a number.
        output_type = apply_overrides({}, typed, as_text=True).get("output_type", {})
        return ParsedSettings(settings, output_type)


def progress_reporter_factory(show_seed: bool) -> "ReporterFactory":
    """Return a factory that builds a progress line for each run."""
    from bertwright.training.callbacks.callback import Callback
    from bertwright.training.clock import TrainingClock
    from bertwright.training.reporters.progress_line import ProgressLine
    from bertwright.training.reporters.throughput import ThroughputMeter

    def make_reporter(seed: int, clock: TrainingClock) -> Sequence[Callback]:
        if show_seed:
            log(f"seed {seed}")
        throughput = ThroughputMeter()
        return throughput, ProgressLine(clock, throughput)

    return make_reporter


def require_one_task(task_data: "Sequence[TaskData]", verb: str) -> "TaskData":
    """Return the only task; UserError if there are several."""
    if len(task_data) > 1:
        raise UserError(f"{verb} takes one task: name one")
    return task_data[0]


@dataclass(frozen=True)
class TaskOptions(FineTuningOptions):
    """The options of a verb that fine-tunes for a task."""

    task: Annotated[
        str | None,
        typer.Option(
            help="Task by name: cola, sst-2, mrpc, sts-b, qqp, mnli, qnli, rte, wnli, squad1, "
            "squad2, race, swag, codah, dream, conll2003, ner, iob2, upos, xpos, feats, "
            "dependency-heads, restoration, sick, sick-relatedness, sick-similarity, "
            "sts-b-similarity, wic, similarity, retrieval, rank, text-to-text, titles. Several, "
            "separated by commas, are learned jointly."
        ),
    ] = None
    data: Annotated[
        Path | None,
        typer.Option(
            help="Folder with a training and a development file; for several tasks one folder "
            "each. Or a data set on the Hub: hf:owner/name, hf:owner/name/config."
        ),
    ] = None
    train: TrainOption = None
    text: Annotated[
        str,
        typer.Option(help="Column of the text; for text-to-text, also the suffix of a file."),
    ] = "text"
    pair: Annotated[str | None, typer.Option(help="Column of the second text.")] = None
    label: Annotated[
        str,
        typer.Option(
            help="Column of the label; for text-to-text, of the text to generate, or the suffix "
            "of its file."
        ),
    ] = "label"
    negative: Annotated[
        list[str] | None, typer.Option(help="Column of negative texts; may be repeated.")
    ] = None
    output_type: Annotated[
        str,
        typer.Option(
            help="Type of the label: class, labels (several at once), number, cloze. For --task "
            "retrieval, the representation of texts: similarity (one vector), sparse (weights of "
            "tokens), late-interaction (a vector for every token)."
        ),
    ] = "class"
    as_text: Annotated[
        bool,
        typer.Option(
            "--as-text",
            help="Answer classes or numbers in words, generated by the decoder, as T5 does.",
        ),
    ] = False
    tags: Annotated[
        str | None,
        typer.Option(
            help="Token classification: tag column of CoNLL files (tag, upos, xpos, feats)."
        ),
    ] = None

    @property
    def dev_file(self) -> Path | None:
        """Return the development file."""
        return None

    def task_data(self, context: typer.Context, settings: ParsedSettings) -> "list[TaskData]":
        """Return the tasks with their data."""
        from bertwright.tasks.data.task_data import TaskData

        names = [] if self.task is None else self.task.split(",")
        if "glue" in names:
            raise UserError("--task glue: run bertwright glue, which fine-tunes on all its tasks")
        if len(names) > 1:
            refuse_options(
                context, f"--task {self.task}: each has a folder in --data", "train", "dev"
            )
            if self.data is None:
                raise UserError(f"--task {self.task}: --data DIR has a folder for each of them")
            return [
                TaskData(
                    self._make_task(context, name, settings), find_task_folder(self.data, name)
                )
                for name in names
            ]
        task = self._make_task(context, names[0] if names else None, settings)
        return [TaskData(task, self.data, self.train, self.dev_file)]

    def _make_task(
        self, context: typer.Context, name: str | None, settings: ParsedSettings
    ) -> "Task":
        from bertwright.tasks.catalogue import answered_in_words

        task = self._find_task(context, name)
        if self.as_text:
            task = answered_in_words(task)
        if settings.output_type:
            task = _with_output_settings(task, settings)
        self._require_negatives_used(task)
        return task

    def _require_negatives_used(self, task: "Task") -> None:
        """Raise UserError for columns of negatives that neither the loss nor a metric uses."""
        from bertwright.tasks.metrics.ranking import RANKING_METRICS
        from bertwright.tasks.outputs import MatchingOutput

        output, is_ranked = task.output_type, bool({*task.metrics} & {*RANKING_METRICS})
        uses_pairs_only = isinstance(output, MatchingOutput) and output.loss == "cosine"
        if self.negative and uses_pairs_only and not is_ranked:
            raise UserError(
                "--negative: the loss cosine learns from pairs alone: leave it out, or choose "
                "output_type.loss=in-batch or triplet"
            )

    def _find_task(self, context: typer.Context, name: str | None) -> "Task":
        from bertwright.core.config import did_you_mean
        from bertwright.tasks.catalogue import find_task, tagging_task

        options = (*COLUMN_OPTIONS, "output_type")
        if name in COLUMN_TASKS:
            return self._find_column_task(context, name)
        if name is not None:
            refuse_options(
                context, f"--task {name} states its columns and output", *options, "tags"
            )
            return find_task(name)
        if self.tags is not None:
            refuse_options(context, "--tags reads words and their tags", *options)
            if self.tags not in TAG_COLUMNS:
                similar = did_you_mean(self.tags, TAG_COLUMNS)
                raise UserError(f"--tags: no column {self.tags!r}{similar}")
            return tagging_task("tag") if self.tags == "tag" else find_task(self.tags)
        return self._build_table_task(context)

    def _find_column_task(self, context: typer.Context, name: str) -> "Task":
        """Return a task of the catalogue that reads the columns of the options."""
        from bertwright.tasks.catalogue import find_task, with_columns

        fixed = ("tags",) if name == "retrieval" else ("output_type", "tags")
        refuse_options(context, f"--task {name} states its output", *fixed)
        if name == "text-to-text":
            refuse_options(context, "--task text-to-text has no negative texts", "negative")
            return with_columns(find_task(name), self._columns)
        if name == "rank":
            refuse_options(context, "--task rank learns from pairs alone", "negative")
        label = self.label if name != "retrieval" or is_stated(context, "label") else None
        columns = replace(self._columns, pair=self.pair or "pair", label=label)
        task = with_columns(find_task(name), columns)
        if is_stated(context, "output_type"):
            task = _with_representation(task, self.output_type)
        return task

    def _build_table_task(self, context: typer.Context) -> "Task":
        """Return the task of a table, by its columns and output type."""
        from bertwright.tasks.catalogue import table_task
        from bertwright.tasks.formats.examples import Example

        refuse_options(context, "--negative is for --task similarity and retrieval", "negative")
        for option, column, text_columns in (
            ("pair", self.pair, [self.text]),
            ("label", self.label, [self.text, self.pair]),
        ):
            if column in text_columns:
                raise UserError(f"--{option} {column}: that is the column of a text: name another")
        name = (self.data or self.train or Path("task")).name.split(".")[0]
        task = explain_errors(
            lambda: table_task(name, self._columns, self.output_type), "--output-type"
        )
        if task.output_type.example_type is not Example:
            raise UserError(
                f"--output-type {self.output_type} is not for texts in columns: choose class, "
                f"labels, number or cloze, or a task by name with --task"
            )
        return task

    @property
    def _columns(self) -> "Columns":
        from bertwright.tasks.formats.tables import Columns

        return Columns(self.text, self.pair, self.label, negatives=tuple(self.negative or ()))


@dataclass(frozen=True)
class SplitTaskOptions(TaskOptions):
    """The options of a verb that fine-tunes for a task, with a development file."""

    dev: DevOption = None

    @property
    def dev_file(self) -> Path | None:
        return self.dev


def _with_output_settings(task: "Task", settings: ParsedSettings) -> "Task":
    """Return the task with settings applied to its output type."""
    from bertwright.recipes.loading import merge
    from bertwright.tasks.outputs import OutputType
    from bertwright.tasks.task import Task

    default, kind = task.output_type.model_dump(mode="json"), settings.output_type.get("kind")
    is_replaced = kind is not None and kind != task.output_type.kind_name()
    stated = settings.output_type if is_replaced else merge(default, settings.output_type)
    output = explain_errors(lambda: OutputType.parse(stated), "output_type")
    is_same_kind = output.kind_name() == task.output_type.kind_name()
    is_default = task.metrics == task.output_type.default_metrics_for(task.labels)
    metrics = task.metrics if is_same_kind and not is_default else ()
    return Task(task.name, output, task.reader, metrics, task.labels, task.source)


def _with_representation(task: "Task", kind: str) -> "Task":
    """Return a task of retrieval with this representation of texts; UserError for other kinds."""
    from bertwright.core.config import did_you_mean
    from bertwright.tasks.outputs import MatchingOutput

    kinds = MatchingOutput.kinds()
    if kind not in kinds:
        raise UserError(
            f"--output-type {kind}: is no representation of texts{did_you_mean(kind, kinds)}"
        )
    if kind == task.output_type.kind_name():
        return task
    return replace(task, output_type=MatchingOutput.parse(kind), metrics=())


def find_task_folder(data: Path, task: str) -> Path:
    """Return the folder of a task, whose name may differ in case and spelling.

    Of a data set on the Hub, it is the configuration.
    """
    name = task.lower().rpartition("/")[2].replace("-", "").replace("_", "")
    if HubDataset.is_named(data):
        return data / name
    for folder in sorted(data.iterdir()) if data.is_dir() else []:
        if folder.is_dir() and folder.name.lower().replace("-", "").replace("_", "") == name:
            return folder
    raise UserError(f"{data}: there is no folder {task!r} in it")


def explain_errors(make: Any, name: str) -> Any:
    """Return what ``make`` returns; turn validation errors into a UserError naming the option."""
    from pydantic import ValidationError

    from bertwright.core.config import to_user_error

    try:
        return make()
    except ValidationError as error:
        raise to_user_error(error, name) from None
    except ValueError as error:
        raise UserError(f"{name}: {error}") from None
