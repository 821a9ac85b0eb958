"""Pre-train an encoder and write its model folder."""

import json
import sys
import time
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path

import torch
from torch import Tensor

from bertwright.core.errors import UserError
from bertwright.data.shards.dataset import Dataset
from bertwright.models.model import Model
from bertwright.models.saving import TRAINING_FILE
from bertwright.modules.attention.positions import LearnedPositionsConfig, PositionsConfig
from bertwright.recipes import Recipe
from bertwright.runtime.process import configure_process
from bertwright.training.callbacks.progressive_stacking import BLOCKS_PREFIX
from bertwright.training.checkpoint_model import load_model_or_checkpoint
from bertwright.training.clock import budget_in_seconds
from bertwright.training.distillation_loss import PretrainingDistillation
from bertwright.training.pretraining.run import (
    PretrainingResult,
    PretrainingRun,
    RestartUncompiled,
    require_same_data_and_budget,
)
from bertwright.training.pretraining.run_folder import (
    RunFolder,
    fit_recipe_to_data,
    resolve_recipe,
)
from bertwright.training.pretraining_batches import PretrainingBatches
from bertwright.training.process_group import ProcessGroup, process_group


def pretrain(
    recipe: Recipe | str | Path | None,
    data: Dataset | str | Path,
    output: str | Path,
    *,
    overrides: Iterable[str] = (),
    budget: str | float | None = None,
    resume: bool = False,
    start_from: str | Path | None = None,
    distillation: PretrainingDistillation | None = None,
    shard: bool = False,
    tensorboard: bool = False,
    quiet: bool = False,
    elapsed_seconds: float = 0.0,
) -> PretrainingResult:
    """Train the encoder of a recipe on a data set, and write its model folder.

    Args:
        recipe: recipe, or its name or file; None takes the recipe of the run to resume or of the
            model to start from, else ``modern-mini``.
        data: folder written by ``prepare``.
        output: folder to write; must not exist unless ``resume``.
        overrides: ``key.path=value`` changes to a named recipe.
        budget: training time in seconds or as text (``20m``), instead of the recipe's steps.
        resume: continue the run in ``output``, bit for bit; start it if there is none.
        start_from: model folder or checkpoint with the initial weights.
        distillation: teacher whose losses are added to the recipe's.
        shard: give each process of torchrun a part of the model instead of the whole model.
        tensorboard: also write TensorBoard logs.
        quiet: show no progress line.
        elapsed_seconds: time of the budget spent before this call.

    Errors: UserError for incompatible arguments; TrainingInterrupted after a signal.
    """
    start_time = time.monotonic() - elapsed_seconds
    configure_process()
    folder = RunFolder(Path(output))
    is_resumed = resume and folder.is_started
    source = Path(start_from) if start_from is not None else None
    run_recipe = resolve_recipe(recipe, overrides, folder if resume else None, source)
    dataset = data if isinstance(data, Dataset) else Dataset.open(data)
    run_recipe = fit_recipe_to_data(run_recipe, dataset, distillation is not None)
    if distillation is not None:
        run_recipe = distillation.fit_student(run_recipe)
    seconds = budget_in_seconds(budget)
    if is_resumed:
        folder.require_same_recipe(run_recipe)
        if source is not None and source.resolve() != folder.start_from:
            raise UserError(f"{output} was not started from {source}: continue without --from")
        if folder.is_finished:
            return _read_finished_run(folder.path, dataset, seconds)
        source = folder.start_from
    with process_group() as group:
        if shard:
            _require_shardable(group, distillation is not None)
        # Everything that may fail early is done before the folder is created.
        model = initial_model(run_recipe, dataset, source)
        batches = PretrainingBatches(run_recipe, dataset, group)
        batches.check_data()
        if group.is_main and not is_resumed:
            if resume and not quiet:
                print(f"{output} holds no run: starting one", file=sys.stderr, flush=True)
            folder.start(run_recipe, dataset.tokenizer, source)
        try:
            with folder.lock() if group.is_main else nullcontext():
                while True:
                    loss = None if distillation is None else distillation.build_loss(model, dataset)
                    run = PretrainingRun(
                        model, batches, dataset, folder, group, seconds, start_time, loss, shard
                    )
                    try:
                        return run.run(tensorboard, quiet)
                    except RestartUncompiled as restart:
                        start_time = time.monotonic() - restart.lost_seconds
                    model = initial_model(run_recipe, dataset, source)  # without compiled modules
        except Exception:
            if group.is_main and not is_resumed:
                folder.release()
            raise


def _require_shardable(process_group: ProcessGroup, has_teacher: bool) -> None:
    """Raise UserError unless there are several processes and no teacher."""
    if has_teacher:
        raise UserError(
            "--shard does not support --teacher, whose losses read hidden states of the whole "
            "model: leave one of them out"
        )
    if process_group.world_size == 1:
        raise UserError(
            "--shard splits a model over several processes: start them with 'torchrun "
            "--nproc-per-node N -m bertwright pretrain ...', one for each GPU"
        )


def _read_finished_run(folder: Path, data: Dataset, budget: float | None) -> PretrainingResult:
    """Return the result of a finished run."""
    record = json.loads((folder / TRAINING_FILE).read_text(encoding="utf-8"))
    if "steps" not in record:
        raise UserError(f"{folder} holds a model that was not trained there: start --from it")
    require_same_data_and_budget(
        folder, data, record["data_hash"], budget, record["budget_seconds"]
    )
    return PretrainingResult(
        folder,
        record["steps"],
        record["tokens"],
        record["seconds"],
        record["result"],
        tuple(record["warnings"]),
    )


def initial_model(recipe: Recipe, data: Dataset, start_from: Path | None) -> Model:
    """Build the model of a recipe for the vocabulary of a data set.

    Heads missing in ``start_from`` are initialised from the seed; additional parameters for longer
    sequences are derived from the existing ones.

    Errors: UserError if the folder has another encoder, such as one with more blocks, or another
    tokenizer.
    """
    model = Model.build(recipe, data.tokenizer.vocab_size, data.tokenizer)
    if start_from is not None:
        _copy_weights(model, start_from, data)
    return model


@torch.no_grad()
def _copy_weights(model: Model, folder: Path, data: Dataset) -> None:
    source, tokenizer = load_model_or_checkpoint(folder)
    if tokenizer.hash != data.tokenizer.hash:
        raise UserError(
            f"{data.path} was prepared with another tokenizer than {folder}: prepare the text with "
            f"--tokenizer {folder}"
        )
    if (before := _num_blocks(source)) > (after := _num_blocks(model)):
        raise UserError(
            f"--from {folder}: its encoder has {before} blocks and the recipe's {after}: choose "
            f"{after} of them with 'bertwright compress prune-layers', or omit the recipe"
        )
    weights = extended_weights(source, model)
    stacks = _shared_stacks(source, model)
    parameters = dict(model.named_parameters())
    removed = [name for name in weights if name not in parameters and _stack_of(name) == "decoder"]
    if removed and "decoder" in stacks:
        raise _other_stack(folder, removed[0])
    for name, parameter in parameters.items():
        weight = weights.get(name)
        if weight is not None and weight.shape[:1] == (source.vocab_size,):
            # A published table may have more rows than the tokenizer has tokens.
            weight = weight[: model.vocab_size]
        if weight is not None and weight.shape == parameter.shape:
            parameter.copy_(weight)
        elif _stack_of(name) in stacks:
            raise _other_stack(folder, name)


def _shared_stacks(source: Model, model: Model) -> set[str]:
    """Return which of the encoder and the decoder both models have."""
    both = (source.recipe, model.recipe)
    return {"encoder"} | ({"decoder"} if all(recipe.decoder for recipe in both) else set())


def _stack_of(parameter_name: str) -> str:
    return parameter_name.partition(".")[0]


def _other_stack(folder: Path, parameter_name: str) -> UserError:
    return UserError(
        f"--from {folder}: its {_stack_of(parameter_name)} differs from the recipe's "
        f"({parameter_name}): omit the recipe to continue training the model unchanged"
    )


def _num_blocks(model: Model) -> int:
    """Return the number of blocks of the encoder that have their own parameters."""
    names = (name for name, _ in model.named_parameters() if name.startswith(BLOCKS_PREFIX))
    return len({name.removeprefix(BLOCKS_PREFIX).partition(".")[0] for name in names})


POSITION_TABLE = "embeddings.positions.table.weight"
GLOBAL_PROJECTIONS = "global_attention."


def extended_weights(source: Model, model: Model) -> dict[str, Tensor]:
    """Return the parameters of ``source`` by name, extended to fit ``model``.

    A longer position table, of the encoder or the decoder, repeats the shorter one; the projections
    of global attention start as copies of the ordinary ones.
    """
    weights: dict[str, Tensor] = dict(source.named_parameters())
    longer_positions = _positions_by_stack(model.recipe)
    for stack, shorter in _positions_by_stack(source.recipe).items():
        name, longer = f"{stack}.{POSITION_TABLE}", longer_positions.get(stack)
        if (
            name in weights  # a tied decoder has none
            and isinstance(shorter, LearnedPositionsConfig)
            and isinstance(longer, LearnedPositionsConfig)
        ):
            weights[name] = _repeat_positions(weights[name], shorter, longer)
    for name, _ in model.named_parameters():
        if GLOBAL_PROJECTIONS in name and name not in weights:
            projection = weights.get(name.replace(GLOBAL_PROJECTIONS, ""))
            if projection is not None:
                weights[name] = projection
    return weights


def _positions_by_stack(recipe: Recipe) -> dict[str, PositionsConfig]:
    """Return the positions of the encoder and of the decoder, if there is one."""
    positions = {"encoder": recipe.encoder.positions}
    if recipe.decoder is not None:
        positions["decoder"] = recipe.decoder.stack_config(recipe.encoder).positions
    return positions


def _repeat_positions(
    table: Tensor, shorter: LearnedPositionsConfig, longer: LearnedPositionsConfig
) -> Tensor:
    """Repeat the rows of the table, except for those before the first position."""
    if longer.size <= shorter.size or longer.offset != shorter.offset:
        return table
    unused, rows = table[: shorter.offset], table[shorter.offset :]
    num_repeats = -(-longer.size // len(rows))
    return torch.cat((unused, rows.repeat(num_repeats, 1)[: longer.size]))
