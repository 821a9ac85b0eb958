"""``bertwright compress``: make a smaller model of a large one."""

from pathlib import Path
from typing import Annotated, Any

import typer

from bertwright.cli.options import (
    ComputingCommand,
    DocumentedCommand,
    ModelArgument,
    OutputOption,
    PluginOption,
    exit_on_interrupt,
    load_fine_tuned,
)
from bertwright.cli.output import JsonOption, log, print_result, print_scores
from bertwright.cli.task_options import (
    DevOption,
    SeedsOption,
    TrainOption,
    progress_reporter_factory,
)
from bertwright.core.errors import UserError

app = typer.Typer(help="Make a smaller model of a large one.", no_args_is_help=True)

DEFAULT_METHOD = "output-distillation"

OR_PRUNE = ", or keep some of its layers with bertwright compress prune-layers"

SettingsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY=VALUE ...]",
        help="Settings of fine-tuning for all stages: epochs, learning_rate, batch_size, dropout, "
        "...",
    ),
]
MethodOption = Annotated[str, typer.Option(help="Compression method, by name or as a YAML file.")]
DataOption = Annotated[
    Path | None, typer.Option(help="Folder with the training and the development file.")
]
WorkOption = Annotated[
    Path | None,
    typer.Option(
        help="Folder for intermediate results; an interrupted run continues with what is in it."
    ),
]


@app.command(cls=DocumentedCommand)
def methods(as_json: JsonOption = False) -> None:
    """List the compression methods."""
    from bertwright.compression.method import METHODS_PACKAGE, CompressionMethod, resource_names

    methods = {name: CompressionMethod.load(name) for name in resource_names(METHODS_PACKAGE)}
    print_result({n: f"{m.description} ({m.source})" for n, m in methods.items()}, as_json)


@app.command(cls=ComputingCommand)
def distil(
    model: ModelArgument,
    output: OutputOption,
    settings: SettingsArgument = None,
    method: MethodOption = DEFAULT_METHOD,
    data: DataOption = None,
    train: TrainOption = None,
    dev: DevOption = None,
    student: Annotated[
        str | None,
        typer.Option(
            help="Student: a pre-trained model (folder or name on the Hub), or a recipe to train "
            "from scratch; by default the fine-tuned model."
        ),
    ] = None,
    layers: Annotated[
        int | None, typer.Option(min=1, help="Number of layers to keep; by default half.")
    ] = None,
    unlabelled: Annotated[
        Path | None,
        typer.Option(help="Unlabelled texts: .txt, .jsonl, or a file of the task."),
    ] = None,
    augmenter: Annotated[
        Path | None,
        typer.Option(help="Masked language model that augments the training texts."),
    ] = None,
    work: WorkOption = None,
    seeds: SeedsOption = 1,
    with_baseline: Annotated[
        bool, typer.Option("--with-baseline", help="Also train the student without a teacher.")
    ] = False,
    plugin: PluginOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compress a fine-tuned model by a method and write the best student."""
    from bertwright.compression.compress import compress
    from bertwright.compression.distillation.transfer import UnlabelledFile
    from bertwright.compression.method import CompressionMethod
    from bertwright.core.files import require_new_folder
    from bertwright.data.hub.reference import names_model
    from bertwright.interop.loading import load
    from bertwright.recipes.loading import apply_overrides
    from bertwright.tasks.data.task_data import TaskData

    require_new_folder(output)
    loaded_method = CompressionMethod.load(method)
    if augmenter is not None and not loaded_method.needs_augmenter:
        raise UserError(f"{method} does not augment texts by a model: leave --augmenter out")
    if loaded_method.uses_unlabelled and unlabelled is None:
        log(f"no --unlabelled file: {method} uses the training texts of the task instead")
    teacher = load_fine_tuned(model, otherwise=OR_PRUNE, needs_head_for="compress")
    with exit_on_interrupt():
        result = compress(
            teacher,
            method,
            TaskData(teacher.task, data, train, dev),
            student=load(student) if student and names_model(student) else student,
            layers=layers,
            unlabelled=None if unlabelled is None else UnlabelledFile(unlabelled, teacher.task),
            augmenter=None if augmenter is None else load(augmenter),
            work_folder=work,
            seeds=seeds,
            with_baseline=with_baseline,
            output=output,
            make_reporter=progress_reporter_factory(seeds > 1),
            settings=apply_overrides({}, settings or []),
        )
    print_scores(result.as_dict(), as_json)


@app.command(cls=ComputingCommand)
def prune_layers(
    model: ModelArgument,
    output: OutputOption,
    layers: Annotated[int, typer.Option(min=1, help="Number of layers to keep.")],
    units: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Feed-forward units to keep in each layer, those with the largest weights; by "
            "default all.",
        ),
    ] = None,
    plugin: PluginOption = None,
    as_json: JsonOption = False,
) -> None:
    """Keep some layers of a pre-trained model, evenly spaced: a student for pretrain --teacher."""
    from bertwright.compression.pruning import layers as pruning
    from bertwright.compression.pruning.structured import Subnetwork, largest_units, prune_model
    from bertwright.core.files import atomic_folder, require_new_folder
    from bertwright.interop.loading import load
    from bertwright.models.text_model import TextModel
    from bertwright.tasks.fine_tuned_model import FineTunedModel

    require_new_folder(output)
    large = load(model)
    if isinstance(large, FineTunedModel):
        raise UserError(f"{model} is fine-tuned: run bertwright compress distil --layers instead")
    kept = pruning.select_layers(layers, len(large.model.encoder.blocks))
    small = pruning.prune_layers(large, kept)
    if units is not None:
        subnetwork = Subnetwork(units=largest_units(small.model, units))
        small = TextModel(prune_model(small.model, subnetwork), small.tokenizer, small.precision)
    with atomic_folder(output) as folder:
        small.save(folder)
    before, after = (sum(p.numel() for p in m.model.parameters()) for m in (large, small))
    result: dict[str, Any] = {"model": str(output), "layers": [layer + 1 for layer in kept]}
    print_result({**result, "parameters": after, "compression_ratio": before / after}, as_json)


@app.command(cls=ComputingCommand)
def fit(
    model: ModelArgument,
    output: OutputOption,
    goal: Annotated[
        str,
        typer.Option(
            help="Goal: size<=25MB, latency<=5ms@1x64 (sequences x tokens), loss<=1.0 (points), "
            "or several of these, separated by commas."
        ),
    ],
    settings: SettingsArgument = None,
    method: MethodOption = DEFAULT_METHOD,
    data: DataOption = None,
    train: TrainOption = None,
    dev: DevOption = None,
    work: WorkOption = None,
    plugin: PluginOption = None,
    as_json: JsonOption = False,
) -> None:
    """Plan, train and measure the model that meets a goal and loses the least accuracy.

    The exit code is 1 where no model meets it.
    """
    from bertwright.compression.budget.goal import Goal
    from bertwright.compression.budget.run import BudgetRun, report_table
    from bertwright.core.files import require_new_folder
    from bertwright.recipes.loading import apply_overrides
    from bertwright.tasks.data.task_data import TaskData

    require_new_folder(output)
    parsed_goal = Goal.parse(goal)
    teacher = load_fine_tuned(model, otherwise=OR_PRUNE, needs_head_for="compress")
    overrides: dict[str, Any] = apply_overrides({}, settings or [])
    task_data = TaskData(teacher.task, data, train, dev)
    with exit_on_interrupt():
        run = BudgetRun(teacher, parsed_goal, task_data, method, log, overrides, work)
        result = run.run(output)
    print_result(result, as_json, report_table(result))
    if not result["is_met"]:
        missed = "; ".join(result["unmet"])
        log(f"bertwright: the goal is missed ({missed}): the nearest model is in {output}")
        raise typer.Exit(1)
