"""``bertwright pretrain``: pre-train an encoder on prepared data."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bertwright.cli.options import OutputOption, PluginOption
from bertwright.cli.output import JsonOption, print_result
from bertwright.cli.verbs.recipes.recipes import RecipeArgument, split_recipe_and_overrides
from bertwright.core.errors import UserError

if TYPE_CHECKING:
    from bertwright.training.distillation_loss import PretrainingDistillation


def pretrain(
    data: Annotated[Path, typer.Option(help="Prepared data folder.")],
    output: OutputOption,
    recipe_and_overrides: RecipeArgument = None,
    budget: Annotated[
        str | None,
        typer.Option(help="Train for this time instead of a number of steps: 90s, 20m, 1.5h."),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Continue the run in the output folder, if there is one."),
    ] = False,
    start_from: Annotated[
        Path | None,
        typer.Option(
            "--from", help="Initialise from the weights of a model: a folder, or a name on the Hub."
        ),
    ] = None,
    teacher: Annotated[
        Path | None,
        typer.Option(help="Teacher for distillation: a model folder, or a name on the Hub."),
    ] = None,
    distillation: Annotated[
        str | None,
        typer.Option(
            help="Distillation recipe, by name or as a YAML file: distil-mlm (by default), "
            "tiny-general, relations, mobile-progressive, leaf; for a student with another "
            "vocabulary dual-vocabulary, mixed-vocabulary."
        ),
    ] = None,
    shard: Annotated[
        bool,
        typer.Option(
            "--shard",
            help="Under torchrun: give each process a part of the model and of the optimiser "
            "(FSDP2), for a model that one device does not hold.",
        ),
    ] = False,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Also write TensorBoard event files.")
    ] = False,
    plugin: PluginOption = None,
    as_json: JsonOption = False,
) -> None:
    """Pre-train an encoder on prepared data."""
    from bertwright.interop.imported_folder import bertwright_folder
    from bertwright.runtime.process import process_age_seconds
    from bertwright.training.pretraining.pretrain import pretrain as run_pretraining

    name, overrides = split_recipe_and_overrides(recipe_and_overrides)
    result = run_pretraining(
        name,
        data,
        output,
        overrides=overrides,
        budget=budget,
        resume=resume,
        start_from=None if start_from is None else bertwright_folder(start_from),
        distillation=_load_distillation(teacher, distillation),
        shard=shard,
        tensorboard=tensorboard,
        elapsed_seconds=process_age_seconds(),
    )
    cost = {"steps": result.num_steps, "tokens": result.num_tokens, "seconds": result.seconds}
    print_result({"model": str(result.folder), **cost, **result.metrics}, as_json)


def _load_distillation(
    teacher_folder: Path | None, distillation: str | None
) -> "PretrainingDistillation | None":
    if teacher_folder is None:
        if distillation is not None:
            raise UserError("--distillation needs a teacher: name one with --teacher")
        return None
    from bertwright.compression.distillation.recipe import DistillationRecipe
    from bertwright.interop.loading import load

    return DistillationRecipe.load(distillation or "distil-mlm").distillation(load(teacher_folder))
